"""One mail to one address: begun in the database, then sent, then marked."""

import smtplib
from typing import Any

from django.core.mail import EmailMessage

from jobs.engine.tasks import RetryAfter
from mail_campaign.models import Campaign, Recipient

SECONDS_TO_WAIT = 60.0

# By these the server says that it has not taken the mail. After any other error it may have.
NOT_TAKEN = (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused)
# By these it speaks of this one mail, unless it says that it closes.
OF_THIS_MAIL = (smtplib.SMTPDataError, smtplib.SMTPRecipientsRefused)
CLOSES = 421


def send(mailer: Any, campaign: Campaign, recipient: Recipient) -> None:
    """Send the campaign to an address, unless that was begun before.

    A crash or a lost connection between `begin` and `end` leaves the address in `sending`: rather
    not at all, and listed for a person, than twice.
    """
    if not recipient.begin():
        return
    headers = {"Message-ID": recipient.message_id}
    message = EmailMessage(campaign.subject, campaign.body, to=[recipient.address], headers=headers)
    try:
        mailer.send_messages([message])
    except NOT_TAKEN as error:
        code, text = answer_of(error)
        if code >= 500:
            recipient.end(Recipient.State.REFUSED, f"{code} {text}")
        elif isinstance(error, OF_THIS_MAIL) and code != CLOSES:
            recipient.put_off(f"{code} {text}")
        else:
            recipient.end(Recipient.State.WAITING)
            raise RetryAfter(SECONDS_TO_WAIT, f"The server says: {code} {text}") from error
    else:
        recipient.end(Recipient.State.SENT)


def answer_of(
    error: smtplib.SMTPResponseException | smtplib.SMTPRecipientsRefused,
) -> tuple[int, str]:
    """(code, text) of the server's refusal."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        ((code, text),) = error.recipients.values()
    else:
        code, text = error.smtp_code, error.smtp_error
    return code, text.decode(errors="replace") if isinstance(text, bytes) else text
