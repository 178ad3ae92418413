"""`manage.py import_csv FILE`: ask for the import of a file; a worker does it."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from csv_import.models import Upload
from csv_import.tasks import import_file


class Command(BaseCommand):
    help = "Import a CSV file of customers (name,city)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, file: Path, **options: Any) -> None:
        if not file.is_file():
            raise CommandError(f"There is no file {file}.")
        # The upload and its job are there together, or neither.
        with transaction.atomic():
            upload = Upload.objects.create(path=str(file.resolve()))
            result = import_file.enqueue(upload_id=upload.pk)
        self.stdout.write(f"Upload {upload.pk} is imported by task {result.id}.")
