"""Who may use the server: pages of this very server that know its token, with requests of a bounded size.

A browser lets any page send requests to 127.0.0.1, and somebody else's domain name may point there. So the host must
be ours by name, the origin must be ours where the browser names one (it always does for a POST), and the path must
begin with a random token that only the user who started the server knows.
"""

import secrets

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 1 << 17
"""Bytes of a request: a long prompt and its settings."""
TOO_LARGE = f"the request is too large; allowed: at most {LARGEST_BODY:,} bytes; shorten the prompt"
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
"""Headers of every answer: nothing is fetched from elsewhere, framed or cached, and no address is passed on."""


class BodyTooLarge(Exception):
    """A request without a stated size is longer than allowed."""


class Guard:
    """ASGI middleware that lets a request through to the application, or answers it with the reason for refusal."""

    def __init__(self, app: ASGIApp, token: str):
        self.app, self.token = app, token
        self.port = 0
        """Set once it is known, because the system may choose it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            # Nothing here uses websockets: they are closed before they open.
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        status, reason = self._find_refusal(scope)
        if reason:
            # The connection is closed, so that the rest of a large request is not read.
            headers = {**HEADERS, "connection": "close"}
            await PlainTextResponse(f"refused: {reason}\n", status, headers=headers)(scope, receive, send)
            return
        size = 0

        async def receive_bounded() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > LARGEST_BODY:
                raise BodyTooLarge
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name, value) for name, value in message.get("headers", []) if name.decode() not in HEADERS]
                ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*own, *ours]}
            await send(message)

        path = "/" + scope["path"].removeprefix("/").partition("/")[2]
        await self.app({**scope, "path": path, "root_path": ""}, receive_bounded, send_with_headers)

    def _find_refusal(self, scope: Scope) -> tuple[int, str]:
        """Return the status and reason of a refusal; an empty reason lets the request through."""
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts, origins, sizes = (
            [value for name, value in headers if name == wanted] for wanted in ("host", "origin", "content-length")
        )
        ours = {f"127.0.0.1:{self.port}", f"localhost:{self.port}"}
        if len(hosts) != 1 or hosts[0] not in ours:
            return 403, "the host is not this server's name; allowed: the address that `unmask view` printed"
        from_elsewhere = any(origin not in {f"http://{host}" for host in ours} for origin in origins)
        if from_elsewhere or (scope["method"] not in ("GET", "HEAD") and not origins):
            return 403, "the request is of another page; allowed: pages of this server"
        given = scope["path"].removeprefix("/").partition("/")[0]
        # In constant time, so that nobody can guess the token letter by letter.
        if not secrets.compare_digest(given.encode("utf-8", "surrogatepass"), self.token.encode()):
            return 403, "the token is missing or wrong; allowed: the whole address that `unmask view` printed"
        if any(not (value.isascii() and value.isdigit()) or int(value) > LARGEST_BODY for value in sizes):
            return 413, TOO_LARGE
        return 200, ""
