"""What is to be translated and what is, read without gettext's programs."""

import ast
import gettext
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from django.utils.translation.template import templatize

ROOT = Path(__file__).parents[1]
ENGINE = ROOT / "jobs" / "engine"
# A catalogue, and where the strings are that stand in it. The engine is an app of its own.
FORGE = (ROOT, [ROOT / part for part in ("accounts", "forge", "jobs", "repositories", "templates")])
CATALOGUES = {"forge": FORGE, "engine": (ENGINE, [ENGINE])}

# (context, singular, plural)
Key = tuple[str, str, str]

# How many strings each function takes, and whether the first one is the context.
FUNCTIONS = {"_": 1, "gettext": 1, "gettext_lazy": 1, "gettext_noop": 1}
FUNCTIONS |= {"ngettext": 2, "ngettext_lazy": 2, "pgettext": 2, "pgettext_lazy": 2, "npgettext": 3}
TEXT = r"""u?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
CALL = re.compile(rf"\b(n?p?gettext|_)\(\s*({TEXT}(?:\s*,\s*{TEXT})*)")


@dataclass
class Entry:
    context: str = ""
    singular: str = ""
    plural: str = ""
    translated: dict[int, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)

    @property
    def key(self) -> Key:
        return self.context, self.singular, self.plural


def po(folder: Path) -> dict[Key, Entry]:
    """The entries of the French catalogue in a folder, its header among them under the empty key."""
    found: dict[Key, Entry] = {}
    text = (folder / "locale/fr/LC_MESSAGES/django.po").read_text()
    for block in text.split("\n\n"):
        entry = _entry(block)
        assert entry.key not in found, entry.key
        found[entry.key] = entry
    return found


def _entry(block: str) -> Entry:
    parts: dict[str, str] = {}
    entry, name = Entry(), ""
    for line in block.strip().splitlines():
        if line.startswith("#"):
            entry.flags |= set(line[2:].split(", ")) if line.startswith("#,") else set()
            assert not line.startswith("#~"), f"obsolete: {line}"
            continue
        word, _space, literal = line.partition(" ") if not line.startswith('"') else ("", "", line)
        name = word or name
        parts[name] = parts.get(name, "") + ast.literal_eval(literal)
    entry.context, entry.singular = parts.pop("msgctxt", ""), parts.pop("msgid")
    entry.plural = parts.pop("msgid_plural", "")
    numbers = {name: int(name[7:-1]) if "[" in name else 0 for name in parts}
    entry.translated = {numbers[name]: text for name, text in parts.items()}
    return entry


def mo(folder: Path) -> dict[str | tuple[str, int], str]:
    """What a program reads that speaks French."""
    with (folder / "locale/fr/LC_MESSAGES/django.mo").open("rb") as file:
        catalogue: dict[str | tuple[str, int], str] = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    return catalogue


def as_mo(entries: dict[Key, Entry]) -> dict[str | tuple[str, int], str]:
    """The same by the text that people write."""
    told: dict[str | tuple[str, int], str] = {}
    for entry in entries.values():
        name = f"{entry.context}\x04{entry.singular}" if entry.context else entry.singular
        for number, text in entry.translated.items():
            told[(name, number) if entry.plural else name] = text
    return told


def marked(name: str) -> set[Key]:
    """Every string that the sources of a catalogue mark for translation."""
    _folder, places = CATALOGUES[name]
    found: set[Key] = set()
    for place in places:
        for path in place.rglob("*"):
            # What lies in the engine is the engine's alone.
            if ENGINE in path.parents and name != "engine":
                continue
            if path.suffix == ".py":
                found |= set(_in_python(path.read_text()))
            elif path.suffix in (".html", ".txt"):
                found |= set(_in_template(path.read_text()))
    return found


def _in_python(source: str) -> Iterator[Key]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            given = node.args[: FUNCTIONS.get(called, 0)]
            texts = [one.value for one in given if isinstance(one, ast.Constant)]
            if texts and len(texts) == len(given):
                yield _key(called, [str(text) for text in texts])


def _in_template(source: str) -> Iterator[Key]:
    for called, arguments in CALL.findall(templatize(source)):
        texts = [ast.literal_eval(text) for text in re.findall(TEXT, arguments)]
        yield _key(called, texts[: FUNCTIONS[called]])


def _key(called: str, texts: list[str]) -> Key:
    context = texts.pop(0) if "pgettext" in called else ""
    return context, texts[0], texts[1] if len(texts) > 1 else ""
