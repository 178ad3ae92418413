"""Each test finds what a migrated database holds, and nothing of the tests before it."""

from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command
from django.core.management.commands import flush

from accounts.models import User
from jobs.engine.models import Schedule
from repositories.models import Repository
from tests.kinds.models import Probe
from tests.kinds.scripted import TASK
from tests.workers import run_due

pytestmark = pytest.mark.django_db(transaction=True)


def leave_traces() -> None:
    person = User.objects.create_user(email="ada@example.org", handle="ada", password="mill")
    person.groups.add(Group.objects.create(name="staff"))
    person.user_permissions.add(Permission.objects.all()[0])
    Repository.objects.create(pk=uuid4(), owner=person, slug="engine")
    Probe.objects.enqueue()
    TASK.enqueue()
    run_due()
    Schedule.objects.filter(name="retention").delete()
    Schedule.objects.update(enabled=False)


def contents() -> dict[str, int | list[Any]]:
    """How many rows each model has; of the schedules, what they say."""
    told = {
        model._meta.label: model._base_manager.count()
        for model in apps.get_models(include_auto_created=True)
    }
    columns = ("name", "cron", "kind", "enabled")
    return {**told, "schedules": sorted(Schedule.objects.values_list(*columns))}


@pytest.mark.parametrize("command", ["flush", flush.Command()], ids=["ours", "Django’s"])
def test_nothing_is_left_of_a_test_and_nothing_that_was_there_is_gone(command: Any) -> None:
    before = contents()
    leave_traces()
    assert contents() != before

    call_command(command, verbosity=0, interactive=False)

    assert contents() == before
