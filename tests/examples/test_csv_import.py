"""The import of a large CSV file survives what kills its worker."""

import csv
import os
import signal
from pathlib import Path

from tests.examples.project import Examples
from tests.waiting import wait_for

ROWS = 100_000
JOB = "SELECT status, attempts, error_message FROM jobs_engine_taskjob"
CUSTOMERS = "SELECT count(*), count(DISTINCT row), min(row), max(row) FROM csv_import_customer"


def write(path: Path, rows: int, *, wrong: int = 0) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "city"])
        for number in range(1, rows + 1):
            city = [] if number == wrong else [f"City {number % 97}"]
            writer.writerow([f"Person {number}", *city])
    return path


def rows_done(examples: Examples) -> int:
    return int(examples.value("SELECT rows_done FROM csv_import_upload"))


def test_an_import_goes_on_where_a_killed_worker_stopped(
    examples: Examples, tmp_path: Path
) -> None:
    examples.manage("import_csv", write(tmp_path / "customers.csv", ROWS))
    worker = examples.start("manage.py", "runworker")
    wait_for(lambda: rows_done(examples) >= ROWS // 5, seconds=60)

    os.kill(examples.running_process(), signal.SIGKILL)
    assert worker.wait(10) == -signal.SIGKILL
    mark = rows_done(examples)
    assert ROWS // 5 <= mark < ROWS
    assert examples.query(CUSTOMERS) == [(mark, mark, 1, mark)]
    examples.manage("runworker", "--burst")

    assert examples.query(JOB) == [("completed", 2, "")]
    assert examples.query(CUSTOMERS) == [(ROWS, ROWS, 1, ROWS)]
    log = examples.value("SELECT log FROM jobs_engine_taskjob")
    assert log == f"Going on after row {mark}.\n"
    (name,) = examples.query("SELECT name FROM csv_import_customer WHERE row = 77777")
    assert name == ("Person 77777",)


def test_a_wrong_row_stops_the_import_with_its_number_and_a_retry_goes_on_from_there(
    examples: Examples, tmp_path: Path
) -> None:
    path = write(tmp_path / "customers.csv", 2500, wrong=2400)
    examples.manage("import_csv", path)
    examples.manage("runworker", "--burst")

    words = "Row 2400 must be name and city, of 100 characters each."
    assert examples.query(JOB) == [("failed", 1, words)]
    assert rows_done(examples) == 2000

    write(path, 2500)
    retry = "from jobs.engine.models import TaskJob; TaskJob.objects.get().requeue()"
    examples.manage("shell", "-v0", "-c", retry)
    examples.manage("runworker", "--burst")

    assert examples.query(JOB) == [("completed", 1, "")]
    assert examples.query(CUSTOMERS) == [(2500, 2500, 1, 2500)]


def test_what_is_no_such_file_is_told_in_a_sentence(examples: Examples, tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    examples.manage("import_csv", tmp_path / "other.csv")
    examples.manage("runworker", "--burst")

    words = "The first line of the file must be name,city."
    assert examples.query(JOB) == [("failed", 1, words)]
