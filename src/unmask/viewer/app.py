"""The explorer's web application: which address does what. Everything that computes runs in a worker's thread."""

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from unmask.base.errors import ConfigError, UnmaskError, require
from unmask.report.pages import asset
from unmask.viewer.asked import asked_branch, asked_run, body, whole
from unmask.viewer.explorer import Explorer
from unmask.viewer.export import exported_runs
from unmask.viewer.guard import TOO_LARGE, BodyTooLarge, Guard
from unmask.viewer.sessions import PageWork, Workers
from unmask.viewer.streams import awaited, streamed

FRONT = {
    "base.css": ("unmask.report", "text/css"),
    "grid.css": ("unmask.report", "text/css"),
    "grid.js": ("unmask.report", "text/javascript"),
    "view.css": ("unmask.viewer", "text/css"),
    "api.js": ("unmask.viewer", "text/javascript"),
    "start.js": ("unmask.viewer", "text/javascript"),
    "compare.js": ("unmask.viewer", "text/javascript"),
    "view.js": ("unmask.viewer", "text/javascript"),
}
"""Files of the page, and the only ones that are served: where each lies and what it is."""
MOST_EXPORTED = 8
"""Runs on one exported page."""


def make_app(explorer: Explorer, workers: Workers, readers: Workers, token: str) -> Guard:
    """The application behind its guard; `workers` decode, `readers` answer what takes a moment."""
    return Guard(Starlette(routes=_routes(_Pages(explorer, workers, readers)), exception_handlers=_ERRORS), token)


class _Pages:
    """What each address answers."""

    def __init__(self, explorer: Explorer, workers: Workers, readers: Workers):
        self.explorer, self.workers, self.readers = explorer, workers, readers

    async def index(self, request: Request) -> Response:
        return HTMLResponse(asset("index.html", "unmask.viewer"))

    async def front(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in FRONT:
            return PlainTextResponse("no such file\n", 404)
        package, kind = FRONT[name]
        return Response(asset(name, package), media_type=kind)

    async def about(self, request: Request) -> Response:
        return await self._value(lambda job: self.explorer.about())

    async def kept(self, request: Request) -> Response:
        id = _given(request, "run")
        return await self._value(lambda job: self.explorer.told(self.explorer.runs.get(id)))

    async def prompts(self, request: Request) -> Response:
        task, split, start = (_given(request, name) for name in ("task", "split", "start"))
        return await self._value(lambda job: self.explorer.prompts_of(task, split, whole("start", _number(start))))

    async def study_prompts(self, request: Request) -> Response:
        cell = [_given(request, name) for name in ("model", "task", "split")]
        return await self._value(lambda job: self.explorer.of_study().prompts(*cell))

    async def study_states(self, request: Request) -> Response:
        of = [_given(request, name) for name in ("model", "task", "split", "prompt")]
        return await self._value(lambda job: self.explorer.of_study().states(*of))

    async def suggestions(self, request: Request) -> Response:
        run, step, position = (_given(request, name) for name in ("run", "step", "position"))
        numbers = [whole(name, _number(value)) for name, value in (("step", step), ("position", position))]
        return await self._value(lambda job: self.explorer.suggestions(run, *numbers))

    async def run(self, request: Request) -> Response:
        asked = asked_run(body(await _json(request)))
        return streamed(self.workers, partial(_swapped, self.explorer.run, asked))

    async def branch(self, request: Request) -> Response:
        asked = asked_branch(body(await _json(request)))
        return streamed(self.workers, partial(_swapped, self.explorer.branch, asked))

    async def export(self, request: Request) -> Response:
        ids: Any = body(await _json(request)).get("runs")
        ok = isinstance(ids, list) and 1 <= len(ids) <= MOST_EXPORTED and all(isinstance(id, str) for id in ids)
        require(ok, "runs", ids, f"1 to {MOST_EXPORTED} runs", "choose some")
        records = [self.explorer.runs.get(id).record for id in ids]
        answer = await awaited(self.readers, lambda job: exported_runs(records))
        if "error" in answer:
            raise ConfigError(answer["error"])
        return Response(answer["value"], media_type="application/octet-stream")

    async def _value(self, work: Callable[[PageWork], Any]) -> Response:
        answer = await awaited(self.readers, work)
        return JSONResponse(answer["value"]) if "value" in answer else _refused(answer.get("error", "it was stopped"))


def _routes(pages: _Pages) -> list[Route]:
    return [
        Route("/", pages.index),
        Route("/front/{name}", pages.front),
        Route("/api/about", pages.about),
        Route("/api/kept", pages.kept),
        Route("/api/prompts", pages.prompts),
        Route("/api/study/prompts", pages.study_prompts),
        Route("/api/study/states", pages.study_states),
        Route("/api/suggestions", pages.suggestions),
        Route("/api/run", pages.run, methods=["POST"]),
        Route("/api/branch", pages.branch, methods=["POST"]),
        Route("/api/export", pages.export, methods=["POST"]),
    ]


def _swapped(work: Callable[[PageWork, Any], None], asked: Any, job: PageWork) -> None:
    work(job, asked)


def _given(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if value is None or len(value) > 300:
        raise ConfigError(f"{name} is missing or too long; allowed: what the page sends; reload it")
    return value


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text


async def _json(request: Request) -> bytes:
    """The body of a request that says it is JSON: a form of another page cannot say so."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    require(kind == "application/json", "content-type", kind, "application/json", "reload the page")
    return await request.body()


def _refused(message: str, status: int = 400) -> Response:
    return JSONResponse({"error": " ".join(message.split())[:2000]}, status)


async def _our_error(request: Request, error: Exception) -> Response:
    return _refused(str(error))


async def _too_large(request: Request, error: Exception) -> Response:
    return _refused(TOO_LARGE, 413)


_ERRORS: Any = {UnmaskError: _our_error, BodyTooLarge: _too_large}
