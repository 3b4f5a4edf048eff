"""Who is let in, without a server: the guard is a function of a request's head."""

import stat
from pathlib import Path

import pytest

from veloxseg.errors import ConfigError
from veloxseg.serve.guard import HEADERS, Guard, cookie_name, read_or_make_token, session_of
from veloxseg.serve.settings import Settings

TOKEN = "t" * 43
PORT = 8760


def settings(tmp_path: Path, **changes) -> Settings:
    return Settings(folder=tmp_path, models=(), port=PORT, **changes)


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    return Guard(None, settings(tmp_path, names=("seg.hospital.example",)), TOKEN)  # type: ignore[arg-type]


def ask(guard: Guard, path: str = "/api/cases", method: str = "GET", **headers: str) -> int:
    given = {"host": f"127.0.0.1:{PORT}", **{name.replace("_", "-"): value for name, value in headers.items()}}
    raw = [(name.encode(), value.encode()) for name, value in given.items()]
    scope = {"path": path, "method": method, "headers": raw}
    refusal = guard.refusal(scope, given)
    return 200 if refusal is None else refusal[0]


BEARER = {"authorization": f"Bearer {TOKEN}"}
COOKIE = {"cookie": f"veloxseg-{PORT}={session_of(TOKEN)}"}
OWN = {"origin": f"http://127.0.0.1:{PORT}"}


def test_only_the_page_and_health_are_for_everybody(guard: Guard) -> None:
    assert [ask(guard, path) for path in ("/", "/page/main.js", "/healthz", "/readyz")] == [200] * 4
    assert [ask(guard, path) for path in ("/api/cases", "/metrics", "/openapi.json", "/pages", "//")] == [401] * 5


@pytest.mark.parametrize(
    "given", ["Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer", "", f"Bearer {TOKEN[:-1]}"]
)
def test_a_wrong_token_is_none(guard: Guard, given: str) -> None:
    assert ask(guard, authorization=given) == 401


def test_the_token_or_its_cookie_opens(guard: Guard) -> None:
    assert ask(guard, **BEARER) == 200
    assert ask(guard, **COOKIE) == 200
    assert ask(guard, cookie=f"veloxseg-{PORT}={TOKEN}") == 401  # the token itself is no cookie
    assert TOKEN not in session_of(TOKEN)


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", ""])
def test_a_foreign_host_is_refused_even_with_the_token(guard: Guard, host: str) -> None:
    assert ask(guard, host=host, **BEARER) == 403
    assert ask(guard, "/healthz", host=host) == 403


@pytest.mark.parametrize("host", [f"localhost:{PORT}", f"LOCALHOST:{PORT}", f"[::1]:{PORT}", "seg.hospital.example"])
def test_own_names_are_known(guard: Guard, host: str) -> None:
    assert ask(guard, host=host, **BEARER) == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", f"http://127.0.0.1:{PORT + 1}", "file://"])
def test_a_foreign_page_cannot_write(guard: Guard, origin: str) -> None:
    assert ask(guard, method="POST", origin=origin, **COOKIE) == 403
    assert ask(guard, method="DELETE", origin=origin, **BEARER) == 403


def test_a_write_by_cookie_says_where_it_comes_from(guard: Guard) -> None:
    assert ask(guard, method="PUT", **COOKIE) == 403
    assert ask(guard, method="PUT", **COOKIE, **OWN) == 200
    assert ask(guard, method="PUT", **BEARER) == 200


def test_two_hosts_are_refused(guard: Guard) -> None:
    raw = [(b"host", b"127.0.0.1:8760"), (b"host", b"evil.example")]
    headers = {"host": "127.0.0.1:8760", **BEARER}
    assert guard.refusal({"path": "/api/cases", "method": "GET", "headers": raw}, headers) is not None


def test_nothing_is_loaded_from_elsewhere() -> None:
    policy = HEADERS["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_a_token_is_made_once_and_kept_private(tmp_path: Path) -> None:
    token = read_or_make_token(settings(tmp_path))
    assert len(token) >= 43  # 256 bits
    assert read_or_make_token(settings(tmp_path)) == token
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


def test_a_weak_token_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("secret\n")
    with pytest.raises(ConfigError, match="at least 32 characters"):
        read_or_make_token(settings(tmp_path, token_file=tmp_path / "mine"))


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_another_address_needs_tls(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="--tls-cert"):
        settings(tmp_path, host=host)
    assert settings(tmp_path, host=host, behind_proxy=True).host == host


def test_cookies_of_two_ports_differ(tmp_path: Path) -> None:
    assert cookie_name(settings(tmp_path)) == f"veloxseg-{PORT}"
