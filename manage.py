#!/usr/bin/env python
"""Django's command line for Forge."""

import os
import sys
from importlib.util import find_spec

EXIT_INTERRUPTED = 130


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "forge.settings")
    if find_spec("django") is None:
        sys.exit("Forge's environment is not there yet: run `make env`, then use .venv/bin/python.")
    try:
        # `up` loads nothing of Django, which its children do: the first page would wait for it.
        up() if sys.argv[1:2] == ["up"] else manage()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def up() -> None:
    from forge.up import main

    sys.exit(main(sys.argv[2:]))


def manage() -> None:
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as wrong:
        if "--traceback" in sys.argv:
            raise
        sys.exit(str(wrong))


if __name__ == "__main__":
    main()
