"""SMTP by Django's backend, which is made to say more than that a mail was taken."""

import email.policy
import smtplib
import ssl
from collections.abc import Mapping
from typing import Any

from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend

from jobs.delivery import Receipt, Unauthorized, Unsure
from jobs.engine.retry import Failed, Permanent
from jobs.engine.text import clean
from jobs.mail_addresses import bare, normal

AUTHENTICATION_WANTED = (530, 535)


class WholeWords(email.policy.EmailPolicy):
    """Writes a word that is longer than a line as it is, as the address in List-Unsubscribe.

    The standard library would encode it (RFC 2047), where only text may be encoded.
    """

    def fold(self, name: str, value: Any) -> str:
        return str(self._for(value).fold(name, value))

    def fold_binary(self, name: str, value: Any) -> bytes:
        return self._for(value).fold_binary(name, value)

    def _for(self, value: Any) -> "email.policy.EmailPolicy[Any]":
        words = str(value).split()
        longest = max(map(len, words), default=0)
        return ONE_LINE if str(value).isascii() and longest > LONGEST_WORD else email.policy.SMTP


LONGEST_WORD = 70
ONE_LINE = email.policy.SMTP.clone(max_line_length=998)
WHOLE_WORDS = WholeWords(linesep=email.policy.SMTP.linesep)


class _Remembers:
    """Keeps what the server said when it took the mail: most name it there."""

    answer = ""

    def data(self, msg: Any) -> tuple[int, bytes]:
        code, words = super().data(msg)  # type: ignore[misc]
        self.answer = _words(words)
        return code, words


class _Smtp(_Remembers, smtplib.SMTP):
    pass


class _SmtpOverTls(_Remembers, smtplib.SMTP_SSL):
    pass


class SmtpBackend(EmailBackend):
    """A provider as in `jobs.delivery`. Nothing can be looked up at a server: at least once."""

    can_find = False

    @property
    def connection_class(self) -> type[smtplib.SMTP | smtplib.SMTP_SSL]:
        return _SmtpOverTls if self.use_ssl else _Smtp

    def deliver(self, message: EmailMessage, *, key: str) -> Receipt:
        sender, recipients = envelope(message)
        data = carried(message)
        connection = self._opened()
        try:
            refused = connection.sendmail(sender, recipients, data)
        except smtplib.SMTPException as error:
            raise _refusal(error) from error
        except OSError as error:
            raise Unsure(f"The SMTP server went away: {type(error).__name__}.") from error
        finally:
            self._close_quietly()
        said = {to: _words(words) for to, (code, words) in refused.items() if code >= 500}
        later = {to: _words(words) for to, (code, words) in refused.items() if code < 500}
        return Receipt(answer=getattr(connection, "answer", ""), refused=said, later=later)

    def find(self, key: str) -> Receipt | None:
        return None

    def probe(self) -> None:
        self._opened()
        self._close_quietly()

    def _opened(self) -> smtplib.SMTP:
        try:
            return self._open_or_close()
        except smtplib.SMTPAuthenticationError as error:
            if error.smtp_code >= 500:
                raise _unauthorized(error) from None
            raise Failed(_told(error.smtp_code, error.smtp_error)) from None
        except (OSError, ssl.SSLError) as error:
            # Among them all of smtplib. Nothing was handed over yet.
            words = clean(str(error)) or type(error).__name__
            raise Failed(f"The SMTP server cannot be used: {words}") from error

    def _open_or_close(self) -> smtplib.SMTP:
        try:
            self.open()
            if self.connection is None:
                raise OSError("there is no connection")
            return self.connection
        except OSError:
            # Django leaves a connection open at which we could not sign in.
            self._close_quietly()
            raise

    def _close_quietly(self) -> None:
        # What matters is known already; how the server says goodbye does not.
        try:
            self.close()
        except (OSError, smtplib.SMTPException):
            self.connection = None


def envelope(message: EmailMessage) -> tuple[str, list[str]]:
    """(sender, recipients), as they are named to the server; raises ValueError."""
    sender, *recipients = (
        bare(normal(str(one))) for one in (message.from_email, *message.recipients())
    )
    return sender, recipients


def carried(message: EmailMessage) -> bytes:
    """The mail as a server is given it; raises ValueError."""
    return message.message(policy=WHOLE_WORDS).as_bytes()


def _refusal(error: smtplib.SMTPException) -> Exception:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return _all_refused(error.recipients)
    if isinstance(error, smtplib.SMTPResponseException):
        if error.smtp_code in AUTHENTICATION_WANTED:
            return _unauthorized(error)
        told = _told(error.smtp_code, error.smtp_error)
        return Permanent(told) if error.smtp_code >= 500 else Failed(told)
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return Permanent(f"The SMTP server cannot carry this mail: {clean(str(error))}")
    return Unsure(f"The SMTP server went away: {clean(str(error)) or type(error).__name__}")


def _unauthorized(error: smtplib.SMTPResponseException) -> Unauthorized:
    words = _words(error.smtp_error)
    return Unauthorized(
        f"The SMTP server does not accept the name and password of SMTP_URL: {words}"
    )


def _all_refused(recipients: Mapping[str, tuple[int, bytes]]) -> Exception:
    """Every recipient was refused: for good, unless the server may take one of them later."""
    told = "; ".join(f"{to}: {_told(code, words)}" for to, (code, words) in recipients.items())
    if len(recipients) == 1:
        told = _told(*next(iter(recipients.values())))
    for_good = all(code >= 500 for code, _words_of_it in recipients.values())
    return Permanent(told) if for_good else Failed(told)


def _told(code: int, words: bytes | str) -> str:
    return f"The SMTP server answered {code}: {_words(words)}"


def _words(words: bytes | str) -> str:
    return clean(words.decode("utf-8", "replace") if isinstance(words, bytes) else words).strip()
