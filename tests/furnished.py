"""A Forge with something in every state, for those who look at its pages."""

from collections.abc import Mapping
from pathlib import Path

from tests import gitrepos
from tests.forge_process import ForgeProcess, Person
from tests.githttp import GitServer
from tests.waiting import wait_for

HELD = 2

README = b"""# Difference engine

Computes tables of **polynomials** by finite differences, without a single multiplication.

```python
def differences(values: list[int]) -> list[int]:
    return [b - a for a, b in zip(values, values[1:])]
```

| column | holds |
|---|---|
| 1 | the value |
| 2 | its first difference |

- [x] seven columns
- [ ] a printer

> It has no pretensions to originate anything.
"""


def engine(folder: Path, name: str = "engine") -> Path:
    """A repository such as people have: folders, files and a README."""
    files = {
        "README.md": README,
        "LICENSE": b"MIT\n" * 200,
        "src/engine.py": b"print('clank')\n" * 90,
        "src/mill.py": b"x = 1\n",
        "docs/notes.md": b"# Notes\n",
        "Makefile": b"all:\n\techo\n",
        "a-file-with-a-name-that-is-quite-a-bit-longer-than-a-telephone-is-wide.txt": b"long\n",
    }
    return gitrepos.small(folder, name, files=files)


def thirty_thousand(folder: Path, name: str = "large") -> Path:
    """More than 30,000 objects, with a README at the tip of `main`."""
    path = gitrepos.large(folder, name, objects=30_400)
    stream = [
        b"commit refs/heads/main\ncommitter %s 1700000002 +0000\n" % gitrepos.AUTHOR,
        b"data 15\nSay what it is.\n",
        b"from refs/heads/main^0\n",
        b"M 100644 inline README.md\ndata %d\n%s\n" % (len(README), README),
    ]
    return gitrepos.written(path, stream)


def furnish(forge: ForgeProcess, person: Person, server: GitServer) -> Mapping[str, str]:
    """Make one of everything; returns the paths of the pages by name."""
    engine(server.repositories)
    gitrepos.empty(server.repositories, "blank")
    gitrepos.large(server.repositories, "held", objects=3000)
    paths = {
        "completed": person.start_import(server.url("engine"), visibility="public"),
        "failed": person.start_import(server.url("nowhere")),
        "retrying": person.start_import(server.url("engine", "status-503"), name="later"),
        "blank": person.start_import(server.url("blank")),
        "cancelled": person.start_import(server.url("engine", "silent"), name="gone"),
    }
    person.send(paths["cancelled"].replace("/progress", "/cancel"))
    wait_for(lambda: {"pending", "running"}.isdisjoint(_states(forge, "blank", "gone", "engine")))
    wait_for(lambda: "failed" in _states(forge, "nowhere"))
    wait_for(lambda: "pending" in _states(forge, "later") and forge.job("later")["attempts"])
    # Two that are held are as many as a person may have running, so the next one waits.
    for number in range(HELD):
        path = person.start_import(server.url("held", "held"), name=f"held-{number}")
    paths["running"] = path
    wait_for(lambda: _states(forge, *(f"held-{n}" for n in range(HELD))) == {"running"})
    paths["waiting"] = person.start_import(server.url("engine"), name="waiting")
    return paths | {"repository": "/ada/engine", "empty": "/ada/blank"}


def _states(forge: ForgeProcess, *slugs: str) -> set[str]:
    return {forge.job(slug)["status"] for slug in slugs}
