from django.db import models


class Sale(models.Model):
    day = models.DateField(db_index=True)
    cents = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.day}: {self.cents / 100:.2f}"
