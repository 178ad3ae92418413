"""The world as git gets to see it: an environment made from nothing.

No configuration of the machine or of a person, no hooks, no prompts, no stored passwords, no
proxy, and no protocol but those that are asked for.
"""

import os
import ssl
from collections.abc import Iterable, Sequence
from pathlib import Path

import certifi
from django.conf import settings

# Faults that old public histories have and that harm nobody who reads them.
_TOLERATED = (
    "badDateOverflow",
    "badEmail",
    "badTimezone",
    "missingEmail",
    "missingNameBeforeEmail",
    "missingSpaceBeforeDate",
    "missingSpaceBeforeEmail",
    "zeroPaddedDate",
    "zeroPaddedFilemode",
)
_CONFIG = {
    "advice.updateRefs": "false",
    "core.askPass": "true",
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "credential.helper": "",
    "fetch.fsckObjects": "true",
    "fetch.recurseSubmodules": "false",
    "fetch.unpackLimit": "1",
    "fetch.writeCommitGraph": "false",
    "gc.auto": "0",
    "http.followRedirects": "false",
    "http.proxy": "",
    "init.defaultBranch": "main",
    "init.templateDir": "",
    "log.mailmap": "false",
    "log.showSignature": "false",
    "maintenance.auto": "false",
    "transfer.bundleURI": "false",
    "transfer.credentialsInUrl": "die",
    "transfer.fsckObjects": "true",
} | {f"fetch.fsck.{fault}": "ignore" for fault in _TOLERATED}


def certificates() -> str:
    """The file of trusted certificate authorities that git and the pre-flight both use."""
    named = ("GIT_SSL_CAINFO", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    usual = (ssl.get_default_verify_paths().cafile, "/etc/ssl/certs/ca-certificates.crt")
    for candidate in (*(os.environ.get(name) for name in named), *usual):
        if candidate and Path(candidate).is_file():
            return candidate
    return certifi.where()


def home() -> Path:
    """An empty directory, so that git finds no configuration and no password of anybody."""
    directory = Path(settings.FORGE_DATA_DIR) / "repositories" / ".home"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


def file_that_trusts(directories: Iterable[Path]) -> bytes:
    """A configuration file that says nothing but that git may trust these directories."""
    escapes = ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n"))
    lines = [b"[safe]\n"]
    for directory in directories:
        value = os.fsencode(directory)
        for character, escaped in escapes:
            value = value.replace(character, escaped)
        lines.append(b'\tdirectory = "%s"\n' % value)
    return b"".join(lines)


def environment(
    *,
    protocols: str = "none",
    safe: Sequence[Path] = (),
    config: Sequence[tuple[str, str]] = (),
) -> dict[str, str]:
    """All that git gets to know of the world; `safe` are the directories that it may trust."""
    values = [*_CONFIG.items(), *(("safe.directory", str(path)) for path in safe), *config]
    variables = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home()),
        "XDG_CONFIG_HOME": str(home()),
        "LC_ALL": "C",
        "TERM": "dumb",
        "GIT_ALLOW_PROTOCOL": protocols,
        "GIT_ASKPASS": "true",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_COUNT": str(len(values)),
    }
    for number, (key, value) in enumerate(values):
        variables[f"GIT_CONFIG_KEY_{number}"] = key
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables
