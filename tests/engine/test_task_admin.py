"""Tasks in the admin: what they were given and returned, and a copy with other arguments."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from accounts.models import User
from jobs.engine.models import TaskJob
from jobs.engine.tasks import job_options
from jobs.engine.testing import run_pending

pytestmark = pytest.mark.django_db


def call(*args: Any, **kwargs: Any) -> list[Any]:
    return [list(args), kwargs]


def yearly(year: int, *, currency: str = "EUR") -> str:
    return f"{year} {currency}"


PATH = f"{__name__}.yearly"


def clerk(*permissions: str) -> Client:
    user = User.objects.create_user(email="clerk@example.org", handle="clerk", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    assert user.user_permissions.count() == len(permissions)
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def desk() -> Client:
    return clerk("view_taskjob", "add_taskjob")


def done(**columns: Any) -> TaskJob:
    job = TaskJob.objects.enqueue(
        **{"task": PATH, "payload": {"args": [2025], "kwargs": {}}, **columns}
    )
    run_pending(TaskJob)
    return TaskJob.objects.get(pk=job.pk)


def page_of(job: TaskJob) -> str:
    return f"/admin/jobs_engine/taskjob/{job.pk}/change/"


def copy_of(job: TaskJob) -> str:
    return f"/admin/jobs_engine/taskjob/{job.pk}/copy/"


def faults(answer: Any) -> str:
    assert answer.status_code == 200
    found = re.findall(r'<ul class="errorlist[^>]*>(.*?)</ul>', answer.content.decode(), re.S)
    return unescape(" ".join(found))


def send(desk: Client, job: TaskJob, args: Any, kwargs: Any) -> Any:
    texts = {"args": json.dumps(args), "kwargs": json.dumps(kwargs)}
    return desk.post(copy_of(job), texts)


def test_the_page_of_a_task_shows_its_arguments_and_its_result(desk: Client) -> None:
    page = unescape(desk.get(page_of(done())).content.decode())
    assert PATH in page
    assert '"args": [\n    2025\n  ]' in page
    assert '"2025 EUR"' in page
    assert "Run a copy" in page


def test_long_arguments_are_folded_and_markup_in_them_is_text(desk: Client) -> None:
    many = ["<script>alert(1)</script>"] * 50
    job = done(task=f"{__name__}.call", payload={"args": many, "kwargs": {}})
    page = desk.get(page_of(job)).content.decode()
    assert page.count("<details><summary>{&quot;args&quot;") == 1
    assert "<script>alert" not in page


def test_a_copy_runs_with_the_edited_arguments_and_the_old_job_stays(desk: Client) -> None:
    job = done(priority=7)
    assert "2025" in desk.get(copy_of(job)).content.decode()

    answer = send(desk, job, [2026], {"currency": "CHF"})

    new = TaskJob.objects.exclude(pk=job.pk).get()
    assert answer.url == page_of(new)
    assert (new.status, new.priority, new.payload) == (
        "pending",
        7,
        {"args": [2026], "kwargs": {"currency": "CHF"}},
    )
    run_pending(TaskJob)
    assert TaskJob.objects.get(pk=new.pk).result == "2026 CHF"
    assert TaskJob.objects.get(pk=job.pk).result == "2025 EUR"


@pytest.mark.parametrize(
    ("args", "kwargs", "fault"),
    [
        ({"a": 1}, {}, "A JSON list"),
        ([2026], [1], "A JSON object"),
        ([], {}, "missing a required argument: 'year'"),
        ([2026, 2027], {}, "too many positional arguments"),
        ([2026], {"colour": "red"}, "unexpected keyword argument 'colour'"),
        (["nul \x00"], {}, "args[0] holds a NUL character"),
        ([float("nan")], {}, "args[0] is nan"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_are_refused_in_the_form(
    desk: Client, args: Any, kwargs: Any, fault: str
) -> None:
    job = done()
    assert fault in faults(send(desk, job, args, kwargs))
    assert TaskJob.objects.count() == 1


def test_text_that_is_no_json_is_refused_in_the_form_and_kept(desk: Client) -> None:
    job = done()
    answer = desk.post(copy_of(job), {"args": "[2026,", "kwargs": "{}"})
    assert "valid JSON" in faults(answer)
    assert "[2026," in answer.content.decode()


@pytest.mark.parametrize(
    ("args", "fault"),
    [
        ("[" + "9" * 5000 + "]", "This cannot be read: Exceeds the limit"),
        ("[" * 100_000, "This cannot be read: "),
        (r'["\ud800"]', "args[0] holds a lone surrogate at position 0"),
        (r'[{"\ud800": 1}]', "holds a lone surrogate at position 0"),
    ],
    ids=["digits", "depth", "surrogate", "key"],
)
def test_text_that_python_or_the_database_cannot_read_is_kept_as_it_was_typed(
    desk: Client, args: str, fault: str
) -> None:
    job = done()
    answer = desk.post(copy_of(job), {"args": args, "kwargs": "{}"})
    assert fault in faults(answer)
    assert args in unescape(answer.content.decode())
    assert TaskJob.objects.count() == 1


@job_options(concurrency=("host:{host}", 1))
def from_host(host: str) -> None: ...


@job_options(unique="{year:04d}")
def by_year(year: int) -> None: ...


@job_options(unique="{year:c}")
def by_letter(year: int) -> None: ...


@pytest.mark.parametrize(
    ("name", "kwargs", "fault"),
    [
        ("from_host", {"host": "a|b"}, "A concurrency key is text without “|”"),
        ("from_host", {"host": "a" * 300}, "309 characters; 300 are allowed."),
        ("by_year", {"year": "next"}, "'{year:04d}' cannot be filled: ValueError"),
        ("by_letter", {"year": 10**30}, "'{year:c}' cannot be filled: OverflowError"),
    ],
)
def test_a_key_that_cannot_be_made_of_the_arguments_is_told_in_the_form(
    desk: Client, name: str, kwargs: dict[str, Any], fault: str
) -> None:
    job = done(task=f"{__name__}.{name}", unique_key=None, concurrency_key="")
    jobs = TaskJob.objects.count()
    assert fault in faults(send(desk, job, [], kwargs))
    assert TaskJob.objects.count() == jobs


def test_arguments_that_are_too_much_together_are_told_in_the_form(
    desk: Client, settings: Any
) -> None:
    settings.JOBS = {**settings.JOBS, "MAX_PAYLOAD_BYTES": 200}
    job = done(task=f"{__name__}.call")
    answer = send(desk, job, ["x" * 150], {"more": "y" * 150})
    assert "bytes as JSON; 200 are allowed." in faults(answer)
    assert TaskJob.objects.count() == 1


def test_a_task_whose_module_raises_cannot_be_copied(
    desk: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_shop_tasks.py").write_text("raise RuntimeError('no till')")
    monkeypatch.syspath_prepend(tmp_path)
    job = done(task="broken_shop_tasks.sell")
    fault = "broken_shop_tasks.sell cannot be imported: RuntimeError: no till"
    assert fault in faults(send(desk, job, [], {}))


def test_a_task_that_is_gone_cannot_be_copied(desk: Client) -> None:
    job = done(task="shop.tasks.gone")
    assert "Unknown task shop.tasks.gone." in faults(send(desk, job, [], {}))


def test_only_those_with_the_permission_may_run_a_copy(desk: Client) -> None:
    job = done()
    User.objects.all().delete()
    reader = clerk("view_taskjob")
    assert "Run a copy" not in reader.get(page_of(job)).content.decode()
    assert reader.get(copy_of(job)).status_code == 403
    assert send(reader, job, [2026], {}).status_code == 403
    assert TaskJob.objects.count() == 1
    User.objects.all().delete()
    assert clerk("add_taskjob").get(copy_of(job)).status_code == 403


def test_a_copy_of_a_job_that_is_gone_is_not_found(desk: Client) -> None:
    job = done()
    TaskJob.objects.all().delete()
    assert desk.get(copy_of(job)).status_code == 404
