"""The import form: what a person may ask for, and what is wrong with it."""

import re
import uuid
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.db import IntegrityError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.models import ImportJob
from jobs.models.import_job import keys_of, name_taken
from repositories.models import Repository, Visibility
from repositories.slugs import MAX_SLUG, validate_slug
from repositories.sources import check_source, suggested_slug


class SourceField(forms.CharField):
    """A clone URL; what a page shows of it again never holds a secret."""

    def prepare_value(self, value: Any) -> Any:
        return without_secrets(value) if isinstance(value, str) else value


def without_secrets(text: str) -> str:
    """What was typed, less what may be a name, a password or a token in it.

    What the rules accept has no room for those; of the rest, all before the last `@` goes, because
    a password may hold any character.
    """
    try:
        check_source(text)
    except ValidationError:
        scheme = re.match(r"\s*[a-z][a-z0-9+.-]*://", text, re.IGNORECASE)
        start = scheme[0] if scheme else ""
        return start + re.split(r"[?#]", text.removeprefix(start).rpartition("@")[2])[0]
    return text


class ImportForm(forms.Form):
    """Source and name of a repository to import for `user`."""

    # Each form that is shown makes one job, however often and how late it is sent.
    ticket = forms.UUIDField(widget=forms.HiddenInput, required=False)
    # Longer than any URL that is accepted, so that check_source says what is wrong with it.
    source_url = SourceField(label=gettext_lazy("Clone URL"), max_length=4096)
    owner = forms.ChoiceField(label=gettext_lazy("Owner"), required=False)
    name = forms.CharField(label=gettext_lazy("Name"), required=False, max_length=MAX_SLUG)
    visibility = forms.ChoiceField(
        label=gettext_lazy("Who can see it"),
        required=False,
        choices=Visibility.choices,
        initial=Visibility.PRIVATE,
    )

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user = user
        cast(forms.ChoiceField, self.fields["owner"]).choices = [(user.handle, user.handle)]
        self.initial.setdefault("owner", user.handle)
        self.initial.setdefault("ticket", ImportJob().pk)

    def clean_source_url(self) -> str:
        return check_source(self.cleaned_data["source_url"])

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        if name:
            validate_slug(name)
        return name

    def clean_visibility(self) -> str:
        return str(self.cleaned_data["visibility"] or Visibility.PRIVATE)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if "source_url" not in cleaned or "name" not in cleaned:
            return cleaned
        try:
            cleaned["name"] = self._name(cleaned["name"], cleaned["source_url"])
        except ValidationError as error:
            self.add_error("name", error)
        return cleaned

    def _name(self, given: str, source_url: str) -> str:
        slug = given or suggested_slug(source_url)
        if not slug:
            raise ValidationError(_("The URL suggests no name: give one."))
        if Repository.objects.filter(owner=self.user.pk, slug__iexact=slug).exists():
            raise ValidationError(name_taken())
        return slug

    def sent_before(self) -> ImportJob | None:
        """The job that this very form has made already, as by a double click."""
        try:
            ticket = uuid.UUID(self.data.get("ticket", ""))
            source_url = check_source(self.data.get("source_url", ""))
        except (ValueError, ValidationError):
            return None
        mine = ImportJob.objects.filter(pk=ticket, user=self.user, source_url=source_url)
        slug = self.data.get("name") or suggested_slug(source_url)
        return mine.filter(slug__iexact=slug).first()

    def enqueue(self) -> ImportJob | None:
        """The job for a valid form: a new one, or the equal one of a double click.

        None, with an error at the name, when another import is under way to that name.
        """
        slug = self.cleaned_data["name"]
        asked = {name: self.cleaned_data[name] for name in ("source_url", "visibility")}
        keys = keys_of(owner_id=self.user.pk, slug=slug, source_url=asked["source_url"])
        wish = {"user": self.user, "slug": slug, **asked, **keys}
        try:
            job = ImportJob.objects.enqueue(id=self._id(), **wish)
        except IntegrityError:
            # The other click of a double one was quicker by a moment, and its job is over already.
            job = self.sent_before() or ImportJob.objects.enqueue(**wish)
        if job.duplicate and any(getattr(job, name) != value for name, value in asked.items()):
            self.add_error("name", _("Another import to this name is waiting or running."))
            return None
        if job.duplicate and job.quiet:
            # It was asked for by a command that waits for it; now by a person who need not.
            ImportJob.objects.filter(pk=job.pk).update(quiet=False)
        return job

    def _id(self) -> uuid.UUID:
        """The form's ticket, unless it served before, for another wish or another person."""
        ticket = self.cleaned_data.get("ticket")
        if ticket is None or ImportJob.objects.filter(pk=ticket).exists():
            return ImportJob().pk
        return cast(uuid.UUID, ticket)
