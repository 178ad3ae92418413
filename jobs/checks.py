"""System checks of Forge's own kinds: what its settings leave undone."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Warning  # noqa: A004 - Django's own name

OUTBOX = "jobs.outbox.OutboxBackend"


def check_delivery(**_kwargs: Any) -> Sequence[CheckMessage]:
    """Mail leaves this machine, unless it is one under development."""
    delivery = getattr(settings, "MAILERS", {}).get("delivery", {}).get("BACKEND")
    if settings.DEBUG or delivery != OUTBOX:
        return []
    return [
        Warning(
            "No mail leaves this machine: it is kept in FORGE_DATA_DIR/outbox.",
            hint="Set POSTMARK_SERVER_TOKEN or SMTP_URL, so that people can sign in by mail.",
            id="jobs.W001",
        )
    ]


def register_checks() -> None:
    # Not at each command that somebody types.
    checks.register(check_delivery, deploy=True)
