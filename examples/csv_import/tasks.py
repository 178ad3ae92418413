"""A large CSV file goes into a table, batch by batch, and goes on where a killed worker stopped."""

import csv
from collections.abc import Iterator, Sequence
from itertools import batched, islice

from django.db import transaction
from django.tasks import task

from csv_import.models import Customer, Upload
from jobs.engine.tasks import JobContext, Permanent, job_options

ROWS_IN_A_BATCH = 1000
COLUMNS = ["name", "city"]


@task(takes_context=True)
@job_options(unique="{upload_id}", max_attempts=10, max_running_seconds=3600)
def import_file(context: JobContext, upload_id: int) -> int:
    """Put the rows of the file into the table; returns how many there are.

    Safe to run twice: each batch moves the mark of the upload in its own transaction.
    """
    upload = Upload.objects.get(pk=upload_id)
    total = sum(1 for _row in rows_of(upload.path))
    if upload.rows_done:
        context.log(f"Going on after row {upload.rows_done}.")
    rest = islice(rows_of(upload.path), upload.rows_done, None)
    for batch in batched(rest, ROWS_IN_A_BATCH):
        context.report(done=upload.rows_done, total=total, step="importing")
        put(upload, batch)
    return upload.rows_done


def rows_of(path: str) -> Iterator[list[str]]:
    """The rows of a file below its heading; raises Permanent for what is no such file."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            if next(rows, None) != COLUMNS:
                raise Permanent(f"The first line of the file must be {','.join(COLUMNS)}.")
            yield from rows
    except FileNotFoundError:
        raise Permanent("The file is not there any more.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise Permanent(f"The file cannot be read as CSV: {error}.") from None


def put(upload: Upload, batch: Sequence[list[str]]) -> None:
    """Insert a batch and move the mark, both or neither."""
    before = upload.rows_done
    customers = [customer(upload, before + number, row) for number, row in enumerate(batch, 1)]
    with transaction.atomic():
        mine = Upload.objects.filter(pk=upload.pk, rows_done=before)
        # A worker that was taken for dead and wakes up finds that the mark has moved.
        if mine.update(rows_done=before + len(batch)) != 1:
            raise RuntimeError("Another attempt has imported these rows meanwhile.")
        Customer.objects.bulk_create(customers)
    upload.rows_done = before + len(batch)


def customer(upload: Upload, number: int, row: list[str]) -> Customer:
    if len(row) != len(COLUMNS) or any(len(value) > 100 for value in row):
        raise Permanent(f"Row {number} must be {' and '.join(COLUMNS)}, of 100 characters each.")
    return Customer(upload=upload, row=number, **dict(zip(COLUMNS, row, strict=True)))
