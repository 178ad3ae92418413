"""Which addresses may be imported, how they are spelled, and what is said of the others."""

import ipaddress

import pytest
from django.core.exceptions import ValidationError
from hypothesis import given
from hypothesis import strategies as st

from repositories.addresses import is_allowed
from repositories.slugs import is_slug
from repositories.sources import check_local, check_source, suggested_slug
from tests import gitrepos
from tests.repositories.strangers import not_root, open_folder


def refusal(text: str) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        check_source(text)
    return caught.value.code, caught.value.messages[0]


@pytest.mark.parametrize(
    ("typed", "canonical"),
    [
        ("https://example.org/a/b.git", "https://example.org/a/b.git"),
        ("  https://example.org/a/b\n", "https://example.org/a/b"),
        ("HTTPS://Example.ORG/A/b/", "https://example.org/A/b"),
        ("https://example.org:443/a", "https://example.org/a"),
        ("http://example.org:80/a", "http://example.org/a"),
        ("https://example.org:8443/a", "https://example.org:8443/a"),
        ("https://example.org./a", "https://example.org/a"),
        ("https://example.org/ä b".replace(" ", ""), "https://example.org/%C3%A4b"),
        ("https://example.org/a%20b", "https://example.org/a%20b"),
        ("https://example.org/~me/a+b@c", "https://example.org/~me/a+b@c"),
        ("https://Bücher.example/a", "https://xn--bcher-kva.example/a"),
        ("https://gitserver/a", "https://gitserver/a"),
        ("https://localhost:3000/a", "https://localhost:3000/a"),
        ("https://9.9.9.9/a", "https://9.9.9.9/a"),
        ("https://[2620:FE:0::fe]/a", "https://[2620:fe::fe]/a"),
        ("https://example.org", "https://example.org"),
    ],
)
def test_an_address_has_one_spelling(typed, canonical):
    assert check_source(typed) == canonical
    assert check_source(canonical) == canonical


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("", "required"),
        ("   ", "required"),
        ("example.org/a/b", "scheme"),
        ("ssh://git@example.org/a", "scheme"),
        ("git://example.org/a", "scheme"),
        ("file:///etc/passwd", "scheme"),
        ("/etc", "scheme"),
        ("ext::sh -c id", "characters"),
        ("--upload-pack=id", "scheme"),
        ("-https://example.org/a", "scheme"),
        ("javascript:alert(1)", "scheme"),
        ("https:/example.org/a", "scheme"),
        ("https://", "host"),
        ("https:///a", "host"),
        ("https://user@example.org/a", "credentials"),
        ("https://user:secret@example.org/a", "credentials"),
        ("https://@example.org/a", "credentials"),
        ("https://example.org/a?b=c", "query"),
        ("https://example.org/a?", "query"),
        ("https://example.org/a#readme", "query"),
        ("https://example.org/a b", "characters"),
        ("https://example.org/a\x00b", "characters"),
        ("https://example.org/a\r\nHost:x", "characters"),
        ("https://example.org/a%0d%0ab", "characters"),
        ("https://example.org/a%00", "characters"),
        ("https://example.org\\@evil.org/a", "characters"),
        ("https://example.org/a%zz", "path"),
        ("https://example.org/a/../b", "path"),
        ("https://example.org/a/%2E%2e/b", "path"),
        ("https://example.org:0/a", "port"),
        ("https://example.org:/a", "port"),
        ("https://example.org:65536/a", "invalid"),
        ("https://example.org:http/a", "invalid"),
        ("https://[::1/a", "invalid"),
        ("https://[v1.x]/a", "host"),
        ("https://exa_mple..org/a", "host"),
        ("https://-example.org/a", "host"),
        ("https://example-.org/a", "host"),
        (f"https://{'a' * 64}.org/a", "host"),
        ("https://example.org/" + "a" * 2048, "too_long"),
        ("https://example.org/" + "ä" * 1000, "too_long"),
        ("https://127.1/a", "host"),
        ("https://0177.0.0.1/a", "host"),
        ("https://0x7f000001/a", "host"),
        ("https://2130706433/a", "host"),
        ("https://1.2.3.4.5/a", "host"),
        ("https://①②⑦.⓪.⓪.①/a", "host"),
        ("https://\uff11\uff12\uff17\u3002\uff10\u3002\uff10\u3002\uff11/a", "host"),
        ("https://[fe80::1%25eth0]/a", "host"),
        ("https://faß\u200d.example/a", "host"),
        ("https://127.0.0.1/a", "address"),
        ("https://127.0.0.1./a", "host"),
        ("https://[::1]/a", "address"),
        ("https://[::ffff:127.0.0.1]/a", "address"),
        ("https://169.254.169.254/latest", "address"),
    ],
)
def test_what_is_not_a_plain_public_address_is_refused(typed, code):
    assert refusal(typed)[0] == code


def test_a_refusal_never_repeats_what_was_typed():
    for typed in ("https://u:SENTINEL@example.org/a", "ftp://SENTINEL", "https://SENTINEL:x/"):
        assert "SENTINEL" not in refusal(typed)[1].upper()


def test_an_ssh_address_is_answered_with_the_https_one():
    assert "https://example.org/me/a.git" in refusal("git@example.org:me/a.git")[1]


@pytest.mark.parametrize(
    "address",
    """
    0.0.0.0 10.1.2.3 100.64.0.1 127.0.0.1 127.255.255.254 168.63.129.16 169.254.169.254 172.16.0.1
    192.0.0.1 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1
    240.0.0.1 255.255.255.255 :: ::1 ::7f00:1 ::ffff:10.0.0.1 ::ffff:127.0.0.1 64:ff9b::7f00:1
    64:ff9b:1::1 100::1 2001::1 2001:db8::1 2002:7f00:1::1 3fff::1 5f00::1 fc00::1 fd12::1 fe80::1
    fec0::1 ff02::1
    """.split(),
)
def test_an_address_that_is_not_of_the_public_internet_is_refused(address):
    assert not is_allowed(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["9.9.9.9", "140.82.121.4", "2606:50c0:8000::153"])
def test_an_address_of_the_public_internet_is_allowed(address):
    assert is_allowed(ipaddress.ip_address(address))


def test_an_administrator_can_allow_a_network_and_no_more(settings):
    settings.FORGE_IMPORT_ALLOWED_NETWORKS = [
        ipaddress.ip_network("10.1.0.0/16"),
        ipaddress.ip_network("fd00::/8"),
    ]

    assert is_allowed(ipaddress.ip_address("10.1.2.3"))
    assert is_allowed(ipaddress.ip_address("::ffff:10.1.2.3"))
    assert is_allowed(ipaddress.ip_address("fd00::1"))
    assert not is_allowed(ipaddress.ip_address("10.2.0.1"))
    assert check_source("http://10.1.2.3:3000/a") == "http://10.1.2.3:3000/a"


@pytest.mark.parametrize(
    ("location", "slug"),
    [
        ("https://example.org/a/b.git", "b"),
        ("https://example.org/a/b", "b"),
        ("https://example.org/a/b.git/", "b"),
        ("https://example.org/a/.git", "a"),
        ("/srv/git/thing/.git", "thing"),
        ("https://example.org/a/b.git.git", "b"),
        ("https://example.org/a/b.lock", "b"),
        ("https://example.org/a/.dots", "dots"),
        ("https://example.org/a/-dash-", "dash"),
        ("https://example.org/a/b.git-", "b"),
        ("https://example.org/a/a%20b%C3%A9", "a-b"),
        ("https://example.org/" + "x" * 300, "x" * 100),
        ("https://example.org/", ""),
        ("https://example.org/%C3%A9", ""),
        ("https://[", ""),
    ],
)
def test_the_address_suggests_a_name(location, slug):
    assert suggested_slug(location) == slug


@given(st.text(max_size=150))
def test_a_suggested_name_is_always_a_valid_one(text):
    slug = suggested_slug(f"https://example.org/{text}")

    assert slug == "" or is_slug(slug)


@given(st.text(max_size=80))
def test_any_text_is_either_refused_or_made_canonical(text):
    for typed in (text, f"https://{text}", f"http://example.org/{text}"):
        try:
            canonical = check_source(typed)
        except ValidationError:
            continue
        assert check_source(canonical) == canonical
        assert canonical.isascii()
        assert canonical.isprintable()


@pytest.mark.parametrize("slug", ["a", "A1", "_x", "a.b", "a-b", "x" * 100, "9"])
def test_a_name_may_be(slug):
    assert is_slug(slug)


@pytest.mark.parametrize(
    "slug",
    [
        "",
        ".",
        "..",
        ".a",
        "-a",
        "a.",
        "a.git",
        "a.GIT",
        "a.lock",
        "a/b",
        "a b",
        "é",
        "a\n",
        "x" * 101,
    ],
)
def test_a_name_may_not_be(slug):
    assert not is_slug(slug)


def test_a_local_path_must_be_the_top_of_a_repository(tmp_path):
    bare = gitrepos.small(tmp_path)
    inside = bare / "objects"
    plain = tmp_path / "plain"
    plain.mkdir()

    assert check_local(bare) == bare
    for wrong in (inside, plain, tmp_path / "missing", bare / "HEAD", "a\0b"):
        with pytest.raises(ValidationError):
            check_local(wrong)


def test_a_local_directory_inside_a_checkout_is_not_a_repository(tmp_path):
    gitrepos.git(tmp_path / ".git", "init", "--quiet", str(tmp_path))
    (tmp_path / "sub").mkdir()

    assert check_local(tmp_path) == tmp_path.resolve()
    with pytest.raises(ValidationError, match="not a Git repository"):
        check_local(tmp_path / "sub")


def test_a_local_path_below_a_closed_directory_is_refused_as_unreadable(settings):
    with open_folder() as folder:
        settings.FORGE_DATA_DIR = folder / "data"
        closed = folder / "closed"
        closed.mkdir()
        bare = gitrepos.small(closed)
        closed.chmod(0)
        with not_root(), pytest.raises(ValidationError, match=f"may not read {bare}"):
            check_local(bare)
        closed.chmod(0o700)


def test_a_checkout_that_may_be_entered_but_not_listed_is_accepted(settings):
    with open_folder() as folder:
        settings.FORGE_DATA_DIR = folder / "data"
        settings.FORGE_DATA_DIR.mkdir()
        settings.FORGE_DATA_DIR.chmod(0o777)
        checkout = folder / "checkout"
        gitrepos.git(checkout / ".git", "init", "--quiet", str(checkout))
        (checkout / "private").mkdir(mode=0o700)
        (checkout / ".git/objects/pack/tmp_pack_x").touch(mode=0o600)
        checkout.chmod(0o711)
        with not_root():
            assert check_local(checkout) == checkout
