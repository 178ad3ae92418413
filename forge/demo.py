"""`up --demo`: something to look at on the first page."""

from pathlib import Path

from django.core.exceptions import ValidationError

from accounts.models import User
from jobs.models import ImportJob
from jobs.models.import_job import keys_of
from repositories.models import Repository, Visibility
from repositories.sources import check_local

HANDLE = "demo"
SLUG = "forge"


def enqueue_demo(checkout: Path) -> str:
    """Enqueue the import of the checkout as demo/forge, once; returns what was done."""
    if Repository.objects.named(HANDLE, SLUG).exists():
        return f"The demo is at /{HANDLE}/{SLUG}."
    try:
        source = check_local(checkout)
    except ValidationError:
        return "No demo: Forge does not run from a Git checkout."
    # Without a password nobody signs in as this person, and nobody reads mail to them.
    person = User.objects.filter(handle__iexact=HANDLE).first() or User.objects.create_user(
        email="demo@localhost", handle=HANDLE, mail_completed=False, mail_failed=False
    )
    ImportJob.objects.enqueue(
        user=person,
        source_url=str(source),
        local=True,
        slug=SLUG,
        visibility=Visibility.PUBLIC,
        **keys_of(owner_id=person.pk, slug=SLUG, source_url=str(source), local=True),
    )
    return f"The demo will be at /{HANDLE}/{SLUG} in a moment."
