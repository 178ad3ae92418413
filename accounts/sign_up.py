"""Who may make an account without an administrator: FORGE_SIGN_UP says."""

from django.conf import settings

from accounts.addresses import domain_of


def may_sign_up(address: str) -> bool:
    """Whether somebody new may come with this address."""
    if settings.FORGE_SIGN_UP == "domains":
        return domain_of(address) in settings.FORGE_SIGN_UP_DOMAINS
    return bool(settings.FORGE_SIGN_UP == "open")
