"""The page of a repository."""

import logging
from typing import cast

from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import ValidationError
from django.db import models
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from repositories.browsing import Unreadable, overview
from repositories.models import Repository, Visitor

logger = logging.getLogger(__name__)


@login_not_required
@require_safe
def repository_page(request: HttpRequest, owner: str, name: str) -> HttpResponse:
    """Show a repository to those who may see it.

    Others get the same answer as for one that does not exist: nobody learns of private ones.
    """
    _refuse_reserved(owner)
    visible = Repository.objects.visible_to(cast(Visitor, request.user))
    found = visible.named(owner, name.removesuffix(".git")).select_related("owner").first()
    if found is None:
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path())
        raise Http404
    if request.path != found.get_absolute_url():
        return redirect(found)
    return render(request, "repositories/repository.html", _context(found))


def _context(repository: Repository) -> dict[str, object]:
    try:
        shown = overview(repository)
    except Unreadable as error:
        logger.error("Repository %s cannot be read: %s", repository.id, error)
        shown = None
    return {"repository": repository, "overview": shown}


def _refuse_reserved(owner: str) -> None:
    """Answer 404, and no sign-in page, for what can be no person's: `static`, `favicon.ico`, …"""
    handle = cast("models.Field[str, str]", get_user_model()._meta.get_field("handle"))
    try:
        handle.run_validators(owner)
    except ValidationError:
        raise Http404 from None
