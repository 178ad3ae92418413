#!/usr/bin/env python
"""Django's command line for Forge."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "forge.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as missing:
        sys.exit(
            f"{missing}\nForge's environment is not there yet: run `make env`, then use .venv/bin/python."
        )
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
