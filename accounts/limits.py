"""How often something may be done: counted in the database, so exact over all web processes."""

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import F
from django.db.models.functions import Greatest, Now
from django.utils.crypto import salted_hmac

from accounts.models import Allowance

NO_WAIT = timedelta()


class TooMany(Exception):
    """The limit is used up; `wait` says for how long."""

    def __init__(self, wait: timedelta) -> None:
        super().__init__(f"too many: again in {wait}")
        self.wait = wait


@dataclass(frozen=True)
class Limit:
    """So many at once, and after that one each `per / count`."""

    name: str
    count: int
    per: timedelta

    @property
    def step(self) -> timedelta:
        return self.per / self.count

    @property
    def ahead(self) -> timedelta:
        """How far `used_until` may be ahead of the clock for one more use to be allowed."""
        return self.per - self.step

    def key(self, who: str) -> str:
        """The primary key of that person's, address's or network's allowance."""
        value = f"{self.name}:{who}"
        return salted_hmac("accounts.limits", value, algorithm="sha256").hexdigest()


def take(limit: Limit, who: str) -> timedelta:
    """Use the limit once; returns NO_WAIT, or how long to wait if it is used up (not used then)."""
    key = limit.key(who)
    while not _advance(limit, key):
        wait = _wait(limit, key)
        if wait is not None and wait > NO_WAIT:
            return wait
        # There is no row yet, a sweep took it, or its time came just now.
        row = Allowance(key=key, used_until=Now())
        Allowance.objects.bulk_create([row], ignore_conflicts=True)
    return NO_WAIT


def demand(limit: Limit, who: str) -> None:
    """Use the limit once; raises TooMany."""
    wait = take(limit, who)
    if wait:
        raise TooMany(wait)


def give_back(limit: Limit, who: str) -> None:
    """Undo one use."""
    Allowance.objects.filter(key=limit.key(who)).update(used_until=F("used_until") - limit.step)


def sweep_allowances() -> int:
    """Remove what the clock has caught up with; returns how many rows."""
    return Allowance.objects.filter(used_until__lt=Now()).delete()[0]


def _advance(limit: Limit, key: str) -> bool:
    """One conditional update: of many at once, as many come through as are allowed."""
    free = Allowance.objects.filter(key=key, used_until__lte=Now() + limit.ahead)
    return free.update(used_until=Greatest(F("used_until"), Now()) + limit.step) == 1


def _wait(limit: Limit, key: str) -> timedelta | None:
    found = Allowance.objects.filter(key=key).annotate(now=Now()).first()
    return found.used_until - limit.ahead - found.now if found else None
