from django import forms


class YearForm(forms.Form):
    year = forms.IntegerField(min_value=1, max_value=9999, initial=2026)
