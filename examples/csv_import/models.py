from django.db import models


class Upload(models.Model):
    """A file to import, and the mark up to where its rows are in the table."""

    path = models.CharField(max_length=1000)
    rows_done = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.path}, {self.rows_done} rows"


class Customer(models.Model):
    upload = models.ForeignKey(Upload, models.CASCADE)
    row = models.PositiveIntegerField()
    name = models.CharField(max_length=100)
    city = models.CharField(max_length=100)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["upload", "row"], name="csv_import_each_row_once")
        ]

    def __str__(self) -> str:
        return self.name
