"""The guard before every request: who asks, under which name, from where.

    Host      must be a name of this server, or a page elsewhere could reach it by pointing its own name here
    Origin    of a write must be this server itself; there is no CORS
    token     256 random bits, as `Authorization: Bearer`, or as a cookie that scripts cannot read (HttpOnly, SameSite)

The page itself, its style and its code hold no data and are given to everybody who asks under the right name; so are
`/healthz` and `/readyz`. Every answer forbids to be framed, sniffed, or to load anything from elsewhere.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from veloxseg.errors import ConfigError, shown
from veloxseg.serve.settings import Settings

__all__ = ["Guard", "cookie_name", "read_or_make_token", "session_of"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
SHORTEST_TOKEN = 32
OPEN = {"/", "/healthz", "/readyz", "/auth/", "/auth/token"}  # and /page/…; the last takes the token as a password
READING = {"GET", "HEAD", "OPTIONS"}
HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


def read_or_make_token(settings: Settings) -> str:
    """The token of the file that the user names, or one that is made once and kept in the store's folder."""
    path = settings.token_file or settings.folder / "token"
    if not path.is_file():
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
    token = path.read_text(encoding="utf-8").strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"the token in {shown(path)} is no word of at least {SHORTEST_TOKEN} characters; make one with "
            "`python -c 'import secrets; print(secrets.token_urlsafe(32))'`"
        )
    return token


def session_of(token: str) -> str:
    """What the cookie holds: a proof that the browser had the token, from which the token cannot be told."""
    return hmac.new(token.encode(), b"veloxseg session", hashlib.sha256).hexdigest()


def cookie_name(settings: Settings) -> str:
    return f"veloxseg-{settings.port}"  # cookies do not tell ports apart


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: App, settings: Settings, token: str) -> None:
        self.app, self.settings = app, settings
        self.token, self.session = token.encode(), session_of(token).encode()
        port = settings.port
        local = ("127.0.0.1", "localhost", "[::1]")
        named = {f"[{settings.host}]" if ":" in settings.host else settings.host, *settings.names}
        self.hosts = {f"{name}:{port}".lower() for name in {*local, *named}} | {name.lower() for name in settings.names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self.refusal(scope, headers) if scope["type"] == "http" else (403, "only HTTP is spoken here")
        if refusal is not None:
            return await _refuse(send, *refusal)
        return await self.app(scope, receive, _with_headers(send))

    def refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        """Status and reason if the request is not let in."""
        hosts = [value for name, value in scope["headers"] if name.lower() == b"host"]
        if len(hosts) != 1 or headers["host"].lower() not in self.hosts:
            return 403, "this server is not known by that name; start it with --name to allow it"
        path, writes = scope["path"], scope["method"] not in READING
        if writes and not self.same_origin(headers):
            return 403, "a page of another origin may not write here"
        if path in OPEN or path.startswith("/page/"):
            return None
        who = self.known(headers)
        if who is None:
            return 401, "a token is needed: Authorization: Bearer TOKEN"
        if writes and who == "cookie" and "origin" not in headers and headers.get("sec-fetch-site") != "same-origin":
            return 403, "a write by cookie has to say where it comes from; use a bearer token"
        return None

    def same_origin(self, headers: dict[str, str]) -> bool:
        origin = headers.get("origin")
        if origin is None:
            return True
        scheme, _, place = origin.lower().partition("://")
        return scheme in ("http", "https") and place == headers["host"].lower()

    def known(self, headers: dict[str, str]) -> str | None:
        """ "token" or "cookie", by which the sender proved that it may; compared in constant time."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token):
            return "token"
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(cookie_name(self.settings))
        except CookieError:
            return None
        if cookie is not None and hmac.compare_digest(cookie.value.encode(), self.session):
            return "cookie"
        return None


def _with_headers(send: Send) -> Send:
    """Adds the protecting headers, unless the answer brings its own."""

    async def wrapped(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = list(message.get("headers", []))
            there = {name.lower() for name, _ in own}
            own += [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in there]
            if b"cache-control" not in there:
                own.append((b"cache-control", b"no-store"))
            message = {**message, "headers": own}
        await send(message)

    return wrapped


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"error": reason}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await _with_headers(send)({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
