"""What the browser that asked for a mail remembers, signed: which row, so that codes fit there only."""

import uuid
from dataclasses import dataclass

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from accounts.signing_in import VALID_FOR

COOKIE = "sign_in"


@dataclass(frozen=True)
class Asked:
    row: uuid.UUID
    address: str

    @classmethod
    def by(cls, request: HttpRequest) -> "Asked | None":
        """What this browser asked for while its mail may still be valid."""
        try:
            kept = signing.loads(request.COOKIES.get(COOKIE, ""), salt=COOKIE, max_age=VALID_FOR)
        except signing.BadSignature:
            return None
        return cls(uuid.UUID(kept["row"]), kept["address"])

    def keep(self, response: HttpResponse) -> None:
        response.set_cookie(
            COOKIE,
            signing.dumps({"row": str(self.row), "address": self.address}, salt=COOKIE),
            max_age=VALID_FOR,
            path=reverse("sign_in"),
            secure=settings.SESSION_COOKIE_SECURE,
            httponly=True,
            samesite="Lax",
        )

    @staticmethod
    def forget(response: HttpResponse) -> None:
        response.delete_cookie(COOKIE, path=reverse("sign_in"), samesite="Lax")
