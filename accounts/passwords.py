"""Passwords, with an end to guessing."""

from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.views.decorators.debug import sensitive_variables

from accounts.addresses import plain
from accounts.limits import Limit, demand, give_back
from accounts.models import User
from accounts.visitors import network_of

FROM_NETWORK = Limit("passwords from a network", 30, timedelta(hours=1))
FOR_ADDRESS = Limit("passwords for an address", 10, timedelta(hours=1))


class LimitedBackend(ModelBackend):
    """Every form that asks for a password comes by here, the admin's too.

    Tries are counted before they are judged, known address or not; right ones are handed back.
    """

    @sensitive_variables("password")
    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **more: Any,
    ) -> User | None:
        """The person, or None; raises TooMany, and PermissionDenied for what is wrong.

        The latter keeps the next backend from looking at the same password again.
        """
        if request is None:
            return super().authenticate(request, username, password, **more)
        address = plain(username or str(more.get(User.USERNAME_FIELD, ""))).lower()
        network = network_of(request)
        demand(FROM_NETWORK, network)
        demand(FOR_ADDRESS, address)
        person = super().authenticate(request, username, password, **more)
        if person is None:
            raise PermissionDenied
        give_back(FROM_NETWORK, network)
        give_back(FOR_ADDRESS, address)
        return person

    async def aauthenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **more: Any,
    ) -> User | None:
        return await sync_to_async(self.authenticate)(request, username, password, **more)
