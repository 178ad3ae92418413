"""Django's `flush`, by which a test's rows are removed, at the price of the rows that there are."""

from typing import Any

from django.core.management.color import no_style
from django.core.management.commands import flush
from django.db import connections

import jobs.apps
import jobs.engine.apps

KEPT = {"django_content_type", "auth_permission"}
"""Tables of which the rows follow from the installed models, and are read by no test as its own."""
MAKERS = (jobs.apps.make_built_in_schedules, jobs.engine.apps.make_built_in_schedules)
"""What makes rows when a database has been migrated."""


class Command(flush.Command):
    """Empties the tables that have rows, and has made again what a migrated database holds.

    Django's own empties every table and makes all content types and permissions anew, which takes
    longer than most tests.
    """

    def handle(self, **options: Any) -> None:
        database = options["database"]
        connection = connections[database]
        filled = filled_tables(connection)
        sql = connection.ops.sql_flush(no_style(), filled, allow_cascade=True)
        connection.ops.execute_sql_flush(sql)
        for make in MAKERS:
            make(using=database)


def filled_tables(connection: Any) -> list[str]:
    """The tables of models that have a row and lose it between tests."""
    names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    questions = [
        f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {connection.ops.quote_name(name)})"
        for name in names
        if name not in KEPT
    ]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(questions))
        return [name for (name,) in cursor.fetchall()]
