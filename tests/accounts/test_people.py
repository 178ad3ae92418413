"""Who may be called what, and that case makes no second person."""

import pytest
from django.contrib.auth import authenticate
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction

from accounts.models import User, validate_handle


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user(email="Ada@Example.org", handle="Ada", password="mill & store")


@pytest.mark.parametrize("handle", ["a", "Ada", "ada-1", "1", "x" * 39, "a-b-c"])
def test_a_handle_is_letters_digits_and_single_inner_hyphens(handle: str) -> None:
    validate_handle(handle)


@pytest.mark.parametrize(
    "handle",
    [
        "",
        "-a",
        "a-",
        "a--b",
        "a_b",
        "a b",
        "a.b",
        "a/b",
        "x" * 40,
        "ada\n",
        "é",
        "\u212aate",
        "\u017fam",
    ],
)
def test_a_handle_is_nothing_else(handle: str) -> None:
    with pytest.raises(ValidationError):
        validate_handle(handle)


@pytest.mark.parametrize(
    "handle", ["import", "jobs", "admin", "Sign-In", "STATIC", "welcome", "healthz", "api"]
)
def test_words_that_forge_needs_are_reserved(handle: str) -> None:
    with pytest.raises(ValidationError) as refused:
        validate_handle(handle)

    assert refused.value.code == "reserved"


@pytest.mark.parametrize(
    ("email", "handle", "field"),
    [
        ("ADA@example.ORG", "other", "email"),
        ("Ada@Example.org", "other", "email"),
        ("other@example.org", "aDA", "handle"),
        ("other@example.org", "jobs", "handle"),
        ("not an address", "other", "email"),
    ],
)
def test_what_is_wrong_with_a_person_is_said_at_the_field(
    ada: User, email: str, handle: str, field: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        User.objects.create_user(email=email, handle=handle)

    assert list(refused.value.message_dict) == [field]
    assert len(refused.value.message_dict[field]) == 1


@pytest.mark.parametrize("email", ["ada@b\u00fccher.example", "Ada@XN--BCHER-KVA.example"])
def test_another_spelling_of_a_domain_makes_no_second_person(db: None, email: str) -> None:
    for kept in ("ada@b\u00fccher.example", "ada@xn--bcher-kva.example"):
        User.objects.all().delete()
        User.objects.create_user(email=kept, handle="ada")
        with pytest.raises(ValidationError) as refused:
            User.objects.create_user(email=email, handle="other")

        assert refused.value.message_dict == {
            "email": ["Somebody already has this e-mail address."]
        }


@pytest.mark.parametrize("email", ['"ada"@example.org', f"{'a' * 65}@example.org"])
def test_a_person_has_an_address_that_a_mail_server_takes(db: None, email: str) -> None:
    with pytest.raises(ValidationError) as refused:
        User.objects.create_user(email=email, handle="ada")

    assert refused.value.message_dict == {"email": ["No mail server takes this address."]}


def test_both_fields_are_named_when_both_are_taken(ada: User) -> None:
    with pytest.raises(ValidationError) as refused:
        User.objects.create_user(email="ADA@example.org", handle="ADA")

    assert set(refused.value.message_dict) == {"email", "handle"}


@pytest.mark.parametrize(
    "taken", [{"email": "ADA@EXAMPLE.ORG", "handle": "b"}, {"email": "b@x.org", "handle": "ADA"}]
)
def test_the_database_itself_refuses_a_second_spelling(ada: User, taken: dict[str, str]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        User.objects.bulk_create([User(**taken)])


@pytest.mark.parametrize("email", ["ada@example.org", "ADA@EXAMPLE.ORG", " Ada@Example.org "])
def test_an_address_signs_in_however_it_is_written(ada: User, email: str) -> None:
    assert authenticate(username=email, password="mill & store") == ada


@pytest.mark.parametrize("email", ["%@example.org", "_da@example.org", "ada@example.orgx", ""])
def test_an_address_is_no_pattern(ada: User, email: str) -> None:
    assert authenticate(username=email, password="mill & store") is None


def test_finding_a_person_reads_the_index(ada: User) -> None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:  # A table of one row is read whole otherwise.
            cursor.execute("SET LOCAL enable_seqscan = off")

    plan = User.objects._with_email("ada@example.org").explain()

    assert "user_email_unique" in plan


def test_a_person_without_password_cannot_sign_in_with_one(db: None) -> None:
    User.objects.create_user(email="b@example.org", handle="babbage")

    assert authenticate(username="b@example.org", password="") is None


def test_createsuperuser_refuses_a_second_spelling_in_a_sentence(
    ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", "mill & store")

    with pytest.raises(CommandError, match="No mail server takes this address"):
        call_command("createsuperuser", interactive=False, email='"ada"@example.org', handle="b")


def test_createsuperuser_works(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", "mill & store")

    call_command(
        "createsuperuser", interactive=False, email="b@example.org", handle="babbage", verbosity=0
    )

    assert User.objects.get(handle="babbage").is_superuser
