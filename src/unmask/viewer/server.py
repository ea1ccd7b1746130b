"""The web application and its server, which listens on this machine alone."""

import asyncio
import os
import secrets
import socket
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from unmask.base.errors import ConfigError, UnmaskError, require
from unmask.report.pages import futures_page, read_asset
from unmask.viewer.explorer import Explorer
from unmask.viewer.guard import TOO_LARGE, BodyTooLarge, Guard
from unmask.viewer.jobs import JobQueue, one_line
from unmask.viewer.page_requests import BranchRequest, ExportRequest, RunRequest, parse_body

HOST = "127.0.0.1"
FILES = {
    **dict.fromkeys(("base.css", "grid.css", "states.css", "dom.js", "grid.js", "states.js"), "unmask.report"),
    **dict.fromkeys(("view.css", "api.js", "prompts.js", "futures.js", "view.js"), "unmask.viewer"),
}
"""Files of the page, the only ones that are served, and the package of each."""
GRACE_S = 2
"""Seconds that open streams have to end before they are cut."""


class Server:
    """The explorer on a port of this machine; port 0 lets the system choose one."""

    def __init__(self, explorer: Explorer, port: int = 0):
        self.socket = _bind_socket(port)
        self.port = int(self.socket.getsockname()[1])
        self.jobs = JobQueue()
        self.token = secrets.token_urlsafe(24)
        self._opening_pages: list[Path] = []
        app = Guard(make_app(explorer, self.jobs), self.token)
        app.port = self.port
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=GRACE_S, ws="none"
        )
        self._server = uvicorn.Server(config)

    @property
    def address(self) -> str:
        """The address to open, which holds the token."""
        return f"http://{HOST}:{self.port}/{self.token}/"

    def write_opening_page(self) -> Path:
        """Write a file that only its owner can read and that leads to the address; it goes when the server ends.

        A browser is started with the file on its command line, which others on the machine can see, not with the token.
        """
        handle, name = tempfile.mkstemp(prefix="unmask-view-", suffix=".html")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f'<meta http-equiv="refresh" content="0; url={self.address}">\n')
        self._opening_pages.append(Path(name))
        return Path(name)

    def run(self, on_start: Callable[[], None] = lambda: None) -> None:
        """Serve until Ctrl-C, SIGTERM or `stop`; afterwards no thread and no port is left."""
        try:
            asyncio.run(self._serve(on_start))
        finally:
            self.jobs.close()
            self.socket.close()
            for page in self._opening_pages:
                page.unlink(missing_ok=True)

    def stop(self) -> None:
        """End the server, from any thread."""
        self._server.should_exit = True

    async def _serve(self, on_start: Callable[[], None]) -> None:
        serving = asyncio.create_task(self._server.serve(sockets=[self.socket]))
        while not (self._server.started or serving.done()):
            await asyncio.sleep(0.01)
        if not serving.done():
            on_start()
        while not serving.done():
            if self._server.should_exit:
                # Otherwise open streams would keep the server until they are cut.
                self.jobs.stop()
            await asyncio.wait({serving}, timeout=0.05)
        serving.result()


def make_app(explorer: Explorer, jobs: JobQueue) -> Starlette:
    """Return the application; it computes in threads, so that lists and pages open while every job is at work."""

    async def index(request: Request) -> Response:
        return HTMLResponse(read_asset("index.html", "unmask.viewer"))

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in FILES:
            return PlainTextResponse("no such file\n", 404)
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        return Response(read_asset(name, FILES[name]), media_type=kind)

    def answer(method: Callable[..., Any], *names: str) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            given = [_read_parameter(request, name) for name in names]
            return JSONResponse(await asyncio.to_thread(method, *given))

        return endpoint

    async def run(request: Request) -> Response:
        wanted = RunRequest.from_table(await _read_body(request), "the request")
        return jobs.stream(lambda job: explorer.run(job, wanted))

    async def branch(request: Request) -> Response:
        wanted = BranchRequest.from_table(await _read_body(request), "the request")
        return jobs.stream(lambda job: explorer.branch(job, wanted))

    async def export(request: Request) -> Response:
        wanted = ExportRequest.from_table(await _read_body(request), "the request")
        runs = [explorer.runs.get(id).data for id in wanted.runs]
        page = await asyncio.to_thread(futures_page, runs)
        return Response(page, media_type="application/octet-stream")

    async def refuse(status: int, text: str | None, request: Request, error: Exception) -> Response:
        return JSONResponse({"error": one_line(text or str(error))}, status)

    routes = [
        Route("/", index),
        Route("/static/{name}", static),
        Route("/api/about", answer(explorer.about)),
        Route("/api/kept", answer(explorer.find_run, "run")),
        Route("/api/prompts", answer(explorer.list_prompts, "task", "split", "start")),
        Route("/api/study/prompts", answer(explorer.study_prompts, "model", "task", "split")),
        Route("/api/study/states", answer(explorer.study_states, "model", "task", "split", "prompt")),
        Route("/api/suggestions", answer(explorer.suggest_tokens, "run", "step", "position")),
        Route("/api/run", run, methods=["POST"]),
        Route("/api/branch", branch, methods=["POST"]),
        Route("/api/export", export, methods=["POST"]),
    ]
    handlers: Any = {UnmaskError: partial(refuse, 400, None), BodyTooLarge: partial(refuse, 413, TOO_LARGE)}
    return Starlette(routes=routes, exception_handlers=handlers)


def _read_parameter(request: Request, name: str) -> Any:
    """Read a query parameter and convert the ones that are whole numbers."""
    value = request.query_params.get(name)
    if value is None or len(value) > 300:
        raise ConfigError(f"{name} is missing or too long; allowed: what the page sends; reload it")
    if name not in ("start", "step", "position"):
        return value
    ok = value.isascii() and value.isdigit() and len(value) < 8
    require(ok, name, value, "a whole number of at most 7 digits", "change it")
    return int(value)


async def _read_body(request: Request) -> Any:
    """Read the JSON body of a request; refuse other content types, because a form of another page could send them."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    require(kind == "application/json", "content-type", kind, "application/json", "reload the page")
    return parse_body(await request.body())


def _bind_socket(port: int) -> socket.socket:
    """Return a socket that only this machine reaches."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # A port that a server has just left may be used again at once.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
    except (OSError, OverflowError) as error:
        bound.close()
        why = error.strerror if isinstance(error, OSError) else "not a port"
        raise ConfigError(
            f"port {port} of {HOST} cannot be had ({why}); allowed: a free one, 1024 to 65535, or 0 for any; choose "
            "another with --port"
        ) from error
    return bound
