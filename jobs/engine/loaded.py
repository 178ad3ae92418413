"""Django, set up and without connections, in a process that runs suspects.

The server that they are forked from imports this. Where it cannot find the project (before 3.13.1
and 3.12.8 it does not have the path for imports of the process that started it), each does itself.
"""

import pickle

import django
from django.apps import apps

if not apps.ready:
    django.setup()


def run(body: bytes, kind: str) -> None:
    """Call a pickled function, which may need models that only now can be imported."""
    pickle.loads(body)(kind)  # noqa: S301 - it comes from the process that started this one
