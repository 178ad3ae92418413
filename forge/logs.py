"""What Forge's log leaves out."""

import logging
import re

TOKEN = re.compile(r"(/(?:sign-in|welcome|preferences/mail)/)[\w:-]{20,}")


class WithoutTokens(logging.Formatter):
    """Addresses in mails lose what opens them, wherever in a message or traceback."""

    def format(self, record: logging.LogRecord) -> str:
        return TOKEN.sub(r"\1***", super().format(record))
