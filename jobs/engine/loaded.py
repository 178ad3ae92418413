"""Imported by the server that suspects are forked from: Django, set up and without connections."""

import django

django.setup()
