"""How git commands are built."""

import ast
import uuid
from pathlib import Path

import pytest

from repositories.git import Git, Source, checked, pin
from repositories.git_environment import environment, home
from repositories.processes import start
from tests import gitrepos

ROOT = Path(__file__).parents[2]


def configured(variables: dict[str, str]) -> list[tuple[str, str]]:
    count = int(variables["GIT_CONFIG_COUNT"])
    return [
        (variables[f"GIT_CONFIG_KEY_{number}"], variables[f"GIT_CONFIG_VALUE_{number}"])
        for number in range(count)
    ]


class Recorder:
    """Starts nothing but the real thing, and remembers with what."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], dict[str, str]]] = []

    def __call__(self, argv, *, env, **more):
        self.calls.append((list(argv), env))
        return start(argv, env=env, **more)


def test_git_commands_are_built_in_one_module_only():
    builders = set()
    for app in ("forge", "accounts", "repositories", "jobs"):
        for path in (ROOT / app).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.List | ast.Tuple) and node.elts:
                    first = node.elts[0]
                    if isinstance(first, ast.Constant) and first.value == "git":
                        builders.add(str(path.relative_to(ROOT)))

    assert builders == {"repositories/git.py"}


def test_nothing_of_the_machines_environment_is_passed_on(monkeypatch):
    for name in ("SECRET", "http_proxy", "GIT_DIR", "GIT_SSH_COMMAND", "LD_PRELOAD", "LANGUAGE"):
        monkeypatch.setenv(name, "x")

    variables = environment()

    known = ("PATH", "HOME", "XDG_CONFIG_HOME", "LC_ALL", "TERM")
    assert {name for name in variables if not name.startswith("GIT_")} == set(known)
    assert "x" not in variables.values()
    assert list(home().iterdir()) == []


def test_no_protocol_is_allowed_but_the_one_that_is_needed(tmp_path):
    remote = Source("https://example.org/a").environment(into=tmp_path)
    local = Source("/srv/a", local=True).environment(into=tmp_path)

    assert environment()["GIT_ALLOW_PROTOCOL"] == "none"
    assert remote["GIT_ALLOW_PROTOCOL"] == "https:http"
    assert local["GIT_ALLOW_PROTOCOL"] == "file"


def test_only_named_directories_are_trusted(tmp_path):
    source = Source("/srv/a", local=True, safe=(Path("/srv/a"),))

    trusted = [
        value
        for key, value in configured(source.environment(into=tmp_path))
        if key == "safe.directory"
    ]

    assert trusted == [str(tmp_path), "/srv/a"]


def test_git_goes_to_the_addresses_that_were_checked(tmp_path):
    pinned = pin("example.org", 443, ["9.9.9.9", "2620:fe::fe"])
    source = Source("https://example.org/a", pins=(pinned,))

    settings = dict(configured(source.environment(into=tmp_path)))

    assert settings["http.curloptResolve"] == "example.org:443:9.9.9.9,[2620:fe::fe]"
    assert settings["http.followRedirects"] == "false"


def test_a_location_is_never_an_option(tmp_path):
    recorder = Recorder()
    repository = Git(tmp_path / f"{uuid.uuid4()}.git", start=recorder)
    repository.init()
    option = Source(f"--upload-pack=touch {tmp_path}/owned", local=True)

    repository.remote_head(option)
    fetch = repository.fetch(option)
    fetch.stderr.read()
    fetch.stderr.close()
    fetch.wait()

    assert not (tmp_path / "owned").exists()
    for argv, _environment in recorder.calls:
        assert "--end-of-options" in argv


def test_a_file_address_is_not_opened_for_an_import_from_the_network(tmp_path):
    gitrepos.small(tmp_path)
    repository = Git(tmp_path / "new.git")
    repository.init()

    done = repository.remote_head(Source(f"file://{tmp_path}/small.git"))

    assert done.code == 128
    assert b"transport 'file' not allowed" in done.stderr


@pytest.mark.parametrize("oid", ["", "HEAD", "-x", "a" * 39, "A" * 40, "g" * 40, "a" * 40 + "\n"])
def test_only_object_names_are_taken_for_object_names(oid):
    with pytest.raises(ValueError, match="not an object name"):
        checked(oid)
