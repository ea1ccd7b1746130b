"""Who may ask: pages of this very server that know its token, with bodies of a bounded size.

A browser lets any page send requests to 127.0.0.1, and a name somebody owns may point there. So the host must be ours
by name, the origin must be ours where a browser says one (and it always does with what changes something), and the
first part of the path must be a random token that only whoever started the server was told.
"""

import secrets
from collections.abc import Sequence

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 1 << 17
"""Bytes of a request: a long prompt and its settings."""
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""Of every answer: nothing is fetched from elsewhere, framed, kept, or told where it was."""


def new_token() -> str:
    """Nobody guesses it."""
    return secrets.token_urlsafe(24)


class Guard:
    """Lets a request through to the application, or answers it with the reason why not."""

    def __init__(self, app: ASGIApp, token: str, names: Sequence[str] = ("127.0.0.1", "localhost")):
        self.app, self.token, self.names = app, token, tuple(names)
        self.port = 0
        """Set once it is known: with port 0 the system chooses."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            # Nothing here speaks websockets: closed before it is opened.
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        status, why = self._refusal(scope)
        if why:
            await PlainTextResponse(f"refused: {why}\n", status, headers=HEADERS)(scope, receive, _short(send))
            return
        inner = {**scope, "path": "/" + scope["path"].removeprefix("/").partition("/")[2], "root_path": ""}
        await self.app(inner, _Bounded(receive), _with_headers(send))

    def _refusal(self, scope: Scope) -> tuple[int, str]:
        """Status and reason; an empty reason where there is none."""
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value for name, value in headers if name == "host"]
        ours = {f"{name}:{self.port}" for name in self.names}
        if len(hosts) != 1 or hosts[0] not in ours:
            return 403, "the host is not this server's name; allowed: the address that `unmask view` printed"
        origins = [value for name, value in headers if name == "origin"]
        from_elsewhere = any(origin not in {f"http://{host}" for host in ours} for origin in origins)
        if from_elsewhere or (scope["method"] not in ("GET", "HEAD") and not origins):
            return 403, "the request is of another page; allowed: pages of this server"
        given = scope["path"].removeprefix("/").partition("/")[0]
        if not secrets.compare_digest(given.encode("utf-8", "surrogatepass"), self.token.encode()):
            return 403, "the token is missing or wrong; allowed: the whole address that `unmask view` printed"
        sizes = [value for name, value in headers if name == "content-length"]
        if any(not (value.isascii() and value.isdigit()) or int(value) > LARGEST_BODY for value in sizes):
            return 413, TOO_LARGE
        return 200, ""


TOO_LARGE = f"the request is too large; allowed: at most {LARGEST_BODY:,} bytes; shorten the prompt"


class BodyTooLarge(Exception):
    """A body that did not say its size went on beyond the limit."""


class _Bounded:
    """A request's body, as far as it is allowed to go."""

    def __init__(self, receive: Receive):
        self.receive, self.read = receive, 0

    async def __call__(self) -> Message:
        message = await self.receive()
        self.read += len(message.get("body", b""))
        if self.read > LARGEST_BODY:
            raise BodyTooLarge
        return message


def _with_headers(send: Send) -> Send:
    """The same, with our headers on every answer."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            ours = {name.encode(): value.encode() for name, value in HEADERS.items()}
            kept = [(name, value) for name, value in message.get("headers", []) if name not in ours]
            message = {**message, "headers": [*kept, *ours.items()]}
        await send(message)

    return sending


def _short(send: Send) -> Send:
    """An answer after which the connection closes: what is left of the request is not read."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), (b"connection", b"close")]}
        await send(message)

    return sending
