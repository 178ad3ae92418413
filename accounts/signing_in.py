"""Signing in by a mailed link, or by the code beside it: one row, consumed once."""

import enum
import secrets
import uuid
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Max
from django.db.models.functions import Coalesce, Now
from django.utils.crypto import salted_hmac

from accounts.limits import sweep_allowances
from accounts.models import SignInToken, User
from accounts.sign_up import may_sign_up
from accounts.tokens import hash_of, new_token

VALID_FOR = timedelta(minutes=15)
KEPT_FOR = timedelta(days=1)
"""After its end a link is still told apart from one that never was."""


class State(enum.Enum):
    OPEN = "open"
    USED = "used"
    EXPIRED = "expired"
    UNKNOWN = "unknown"
    BARRED = "barred"
    """Open, but nobody may sign in by it: the person was shut out, or no new one may come."""


class Over(Exception):
    """The link or code signs nobody in; `state` says why."""

    def __init__(self, state: State) -> None:
        super().__init__(state.value)
        self.state = state


class WrongCode(Exception):
    """That was not the code; it can be tried `left` times more."""

    def __init__(self, left: int) -> None:
        super().__init__(f"wrong code, {left} left")
        self.left = left


def new_row(address: str, *, leads_to: str, is_told: bool) -> tuple[SignInToken, str, str]:
    """(row, token, code); the only place where token and code are known. The row is yet to be saved.

    A row whose code nobody `is_told` has none, so that it cannot be guessed: guesses at an address
    are thus as few as the mails to it, and need no limit that a stranger could use up.
    """
    token, code, no_code = new_token(), f"{secrets.randbelow(1_000_000):06}", new_token()
    pk, now = uuid.uuid4(), _now()
    row = SignInToken(
        pk=pk,
        token_hash=hash_of(token),
        code_hash=_hash_of_code(pk, code if is_told else no_code),
        address=address,
        leads_to=leads_to,
        created_at=now,
        expires_at=now + VALID_FOR,
    )
    return row, token, code


def _now() -> datetime:
    """The time of the database, by whose clock rows end."""
    # An aggregate answers where there is no row, and here there is none to read.
    nothing = SignInToken.objects.filter(token_hash="")
    now: datetime = nothing.aggregate(now=Coalesce(Max("created_at"), Now()))["now"]
    return now


def found(token: str) -> tuple[State, SignInToken | None]:
    """What has become of a link; the row where it is open."""
    state, row = _read(token_hash=hash_of(token))
    return state, row if state is State.OPEN else None


def state_of(row_id: uuid.UUID) -> State:
    """What has become of a row."""
    return _read(pk=row_id)[0]


def _read(**which: Any) -> tuple[State, SignInToken | None]:
    row = SignInToken.objects.annotate(now=Now()).filter(**which).first()
    if row is None:
        return State.UNKNOWN, None
    if row.used_at or row.codes_tried >= SignInToken.MOST_CODES:
        return State.USED, row
    is_open = row.expires_at > row.now  # type: ignore[attr-defined]
    return State.OPEN if is_open else State.EXPIRED, row


def person_of(row: SignInToken) -> User | None:
    """Whom the row signs in: who has the address now; None for somebody new. Raises Over."""
    person = User.objects.at(row.address)
    if not (person.is_active if person else may_sign_up(row.address)):
        raise Over(State.BARRED)
    return person


def sign_in_by(row: SignInToken) -> User:
    """Consume the row; returns the person who signs in by it. Raises Over."""
    with transaction.atomic():
        _consume(row)
        person = person_of(row)
        if person is None:
            raise Over(State.BARRED)
    return person


def join_by(row: SignInToken, person: User) -> User:
    """Consume the row and save the new person, both or neither; raises Over.

    Raises IntegrityError when the handle or the address was taken meanwhile.
    """
    with transaction.atomic():
        _consume(row)
        person.save()
    return person


def try_code(row_id: uuid.UUID, code: str) -> SignInToken:
    """The open row, if this is its code; raises WrongCode or Over.

    The try is counted before it is judged, so that many at once are not more than were allowed.
    """
    mine = SignInToken.objects.filter(pk=row_id)
    if mine.open().update(codes_tried=F("codes_tried") + 1) != 1:
        raise Over(state_of(row_id))
    row = mine.get()
    if secrets.compare_digest(row.code_hash, _hash_of_code(row_id, code)):
        mine.update(codes_tried=F("codes_tried") - 1)
        return row
    left = SignInToken.MOST_CODES - row.codes_tried
    if left <= 0:
        raise Over(State.USED)
    raise WrongCode(left)


def link_for(row: SignInToken) -> str:
    """The token of a new link in place of the row, for somebody new who typed its code.

    Raises Over.
    """
    new, token, _code = new_row(row.address, leads_to=row.leads_to, is_told=False)
    with transaction.atomic():
        _consume(row)
        new.save(force_insert=True)
    return token


def sweep() -> dict[str, int]:
    """Remove rows that say nothing any more; to be called by a schedule."""
    old = SignInToken.objects.filter(expires_at__lt=Now() - KEPT_FOR)
    return {"tokens": old.delete()[0], "allowances": sweep_allowances()}


def _consume(row: SignInToken) -> None:
    """End this row and the address's other open ones, in a transaction; raises Over."""
    rows = SignInToken.objects.to(row.address).open()
    # All lock in the same order, so that two links of one address used at once do not deadlock.
    list(rows.select_for_update().order_by("pk").values_list("pk"))
    if rows.filter(pk=row.pk).update(used_at=Now()) != 1:
        raise Over(state_of(row.pk))
    rows.update(used_at=Now())


def _hash_of_code(row_id: uuid.UUID, code: str) -> str:
    """Keyed, because a million codes are soon tried; the row's id makes equal codes differ."""
    value = f"{row_id}:{code}"
    return salted_hmac("accounts.signing_in", value, algorithm="sha256").hexdigest()
