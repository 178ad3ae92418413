"""What people choose for themselves: their language, and which mails they get."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.core import signing
from django.core.exceptions import ValidationError
from django.core.mail import EmailMultiAlternatives
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from accounts.mail_choices import SALT, opened, switch_off_path
from accounts.models import User
from forge.logs import TOKEN
from tests.accounts.mails import mailed, who

pytestmark = pytest.mark.django_db
Outbox = list[EmailMultiAlternatives]
FRENCH = {"Accept-Language": "fr"}


@pytest.fixture(autouse=True)
def _own_language() -> Iterator[None]:
    yield
    translation.deactivate()


@pytest.fixture
def ada() -> User:
    return User.objects.create_user(
        email="ada@example.org", handle="ada", password="mill & store", language="en"
    )


@pytest.fixture
def page(ada: User) -> Client:
    client = Client()
    client.force_login(ada)
    return client


def fresh(person: User) -> User:
    return User.objects.get(pk=person.pk)


def speaks(answer: Any) -> str:
    """The language of a page, which its header and its first tag tell alike."""
    (language,) = re.findall(r'<html lang="([a-z-]+)"', answer.content.decode())
    assert answer["Content-Language"] == language
    return str(language)


# The page.


def test_the_page_shows_what_was_chosen_and_keeps_what_is(page: Client, ada: User) -> None:
    shown = page.get("/preferences").content.decode()
    assert '<option value="en" selected>English</option>' in shown
    assert '<option value="fr">Français</option>' in shown
    assert shown.count("checked") == 2

    answer = page.post("/preferences", {"language": "fr", "mail_failed": "on"}, follow=True)

    assert answer.redirect_chain == [("/preferences", 302)]
    assert speaks(answer) == "fr"
    assert "Vos préférences sont enregistrées." in answer.content.decode()
    assert '<option value="fr" selected>' in answer.content.decode()
    person = fresh(ada)
    assert (person.language, person.mail_completed, person.mail_failed) == ("fr", False, True)


@pytest.mark.parametrize("language", ["", "tlh", "fr'"])
def test_a_language_that_forge_does_not_speak_is_refused_where_it_was_chosen(
    page: Client, ada: User, language: str
) -> None:
    answer = page.post("/preferences", {"language": language, "mail_failed": "on"})
    assert answer.status_code == 422
    assert 'class="field wrong"' in answer.content.decode()
    assert fresh(ada).language == "en"
    assert fresh(ada).mail_completed


def test_saving_changes_nothing_else_of_the_person(page: Client, ada: User) -> None:
    page.get("/preferences")
    User.objects.update(handle="lovelace", is_staff=True)
    page.post("/preferences", {"language": "en", "handle": "eve", "is_superuser": "on"})
    person = fresh(ada)
    assert (person.handle, person.is_staff, person.is_superuser) == ("lovelace", True, False)


def test_the_page_is_found_in_the_menu_and_needs_a_person(page: Client, client: Client) -> None:
    assert 'href="/preferences"' in page.get("/jobs").content.decode()
    assert client.get("/preferences")["Location"] == "/sign-in?next=/preferences"
    assert page.put("/preferences").status_code == 405


def test_nobody_is_called_like_the_page() -> None:
    with pytest.raises(ValidationError, match="reserved"):
        User.objects.create_user(email="p@example.org", handle="Preferences")


# The language.


@pytest.mark.parametrize("path", ["/", "/jobs", "/import", "/preferences", "/no/such/page"])
def test_pages_speak_the_language_of_the_person_whatever_the_browser_asks(
    page: Client, ada: User, path: str
) -> None:
    assert speaks(page.get(path, headers=FRENCH)) == "en"
    User.objects.update(language="fr")
    assert speaks(page.get(path, headers={"Accept-Language": "en"})) == "fr"


def test_one_persons_language_is_not_the_next_ones(page: Client, ada: User) -> None:
    User.objects.update(language="fr")
    assert speaks(page.get("/jobs")) == "fr"
    assert speaks(Client().get("/sign-in")) == "en"


def test_the_first_sign_in_says_the_language_and_later_ones_do_not_change_it(ada: User) -> None:
    User.objects.update(language="")
    words = {"email": ada.email, "password": "mill & store"}
    assert Client().post("/sign-in", words, headers=FRENCH).status_code == 302
    assert fresh(ada).language == "fr"

    assert Client().post("/sign-in", words, headers={"Accept-Language": "en"}).status_code == 302
    assert fresh(ada).language == "fr"


def test_somebody_new_speaks_what_the_browser_asked_for(
    client: Client, mailoutbox: Outbox, settings: Any
) -> None:
    settings.FORGE_SIGN_UP = "open"
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "fr"
    mail = mailed(client, mailoutbox, "grace@example.org")
    assert mailoutbox[0].subject.startswith("Votre lien pour créer un compte")
    assert client.post(mail.path, {"handle": "grace"}).status_code == 302
    assert User.objects.get(handle="grace").language == "fr"


def test_a_sign_in_mail_and_its_page_speak_the_persons_language(
    client: Client, ada: User, mailoutbox: Outbox
) -> None:
    User.objects.update(language="fr")
    mail = mailed(client, mailoutbox, ada.email)
    assert mailoutbox[0].subject.startswith("Votre lien de connexion")
    assert "Ouvrez ce lien pour vous connecter" in mailoutbox[0].body
    assert speaks(client.get(mail.path)) == "fr"


def test_the_answer_to_who_asks_for_a_mail_does_not_tell_the_persons_language(
    ada: User, mailoutbox: Outbox
) -> None:
    User.objects.update(language="fr")
    for address in (ada.email, "nobody@example.org"):
        answer = Client().post("/sign-in", {"email": address}, follow=True)
        assert speaks(answer) == "en"


def test_the_word_that_the_server_lives_asks_for_nobody(page: Client) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert page.get("/healthz").content == b"ok\n"
    assert len(queries) == 0


# The address in a mail that switches off.


def test_the_address_asks_and_its_button_switches_off(client: Client, ada: User) -> None:
    path = switch_off_path(ada, "mail_completed")
    shown = client.get(path)
    assert shown.status_code == 200
    assert "Forge mails ada <strong>when an import is completed</strong>." in shown.content.decode()
    assert "<button" in shown.content.decode()
    assert fresh(ada).mail_completed

    after = client.post(path)

    assert after.status_code == 200
    assert "These mails are off" in after.content.decode()
    assert "<button" not in after.content.decode().partition("<main")[2]
    assert (fresh(ada).mail_completed, fresh(ada).mail_failed) == (False, True)
    assert who(client) is None


def test_mail_programs_switch_off_with_one_request_and_without_a_cookie(ada: User) -> None:
    program = Client(enforce_csrf_checks=True)
    path = switch_off_path(ada, "mail_failed")
    for _twice in range(2):
        answer = program.post(path, {"List-Unsubscribe": "One-Click"})
        assert answer.status_code == 200
    assert not fresh(ada).mail_failed
    assert not answer.cookies


@pytest.mark.parametrize("charset", ["ISO-8859-1", "windows-1252", "hex", "utf-16", "none"])
def test_mail_programs_switch_off_whatever_they_say_of_their_letters(
    ada: User, charset: str
) -> None:
    kind = f"application/x-www-form-urlencoded; charset={charset}"
    body = b"List-Unsubscribe=One-Click"
    path = switch_off_path(ada, "mail_failed")

    assert Client().generic("POST", path, body, content_type=kind).status_code == 200
    assert not fresh(ada).mail_failed
    for elsewhere in ("/preferences", "/preferences/mail/"):
        answer = Client().generic("POST", elsewhere, body, content_type=kind)
        assert answer.status_code == 400


def test_the_page_speaks_the_language_of_the_mail(client: Client, ada: User) -> None:
    User.objects.update(language="fr")
    assert speaks(client.get(switch_off_path(ada, "mail_failed"))) == "fr"


def test_the_address_works_for_who_is_signed_in_as_somebody_else(page: Client) -> None:
    bob = User.objects.create_user(email="bob@example.org", handle="bob")
    page.post(switch_off_path(bob, "mail_failed"))
    assert set(User.objects.filter(mail_failed=True).values_list("handle", flat=True)) == {"ada"}


@pytest.mark.parametrize("verb", ["get", "post"])
def test_a_wrong_address_is_not_there(client: Client, ada: User, verb: str) -> None:
    path = switch_off_path(ada, "mail_failed")
    head, _slash, token = path.rpartition("/")
    signed_wrong = [
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        "nonsense",
        signed(ada, salt="another salt"),
        switch_off_path(ada, "is_active").rpartition("/")[2],
        switch_off_path(User(pk=999_999), "mail_failed").rpartition("/")[2],
    ]
    for wrong in signed_wrong:
        assert getattr(client, verb)(f"{head}/{wrong}").status_code == 404
    assert User.objects.filter(mail_failed=True, mail_completed=True, is_active=True).count() == 1


def signed(person: User, *, salt: str) -> str:
    """A token that this Forge signed for something else."""
    assert salt != SALT
    return signing.dumps([str(person.pk), "mail_failed"], salt=salt)


def test_the_address_is_not_repeated_in_logs(ada: User) -> None:
    path = switch_off_path(ada, "mail_failed")
    assert opened(path.rpartition("/")[2]) == (str(ada.pk), "mail_failed")
    assert TOKEN.sub(r"\1***", f"GET {path} 200") == "GET /preferences/mail/*** 200"
