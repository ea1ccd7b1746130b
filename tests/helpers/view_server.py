"""The explorer on a free port, and requests to it as a browser or somebody else would send them."""

import http.client
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from unmask.api.load import load
from unmask.api.model import Model
from unmask.core import DenoiserWrapper
from unmask.lab.store import Store
from unmask.lab.study import StudyConfig
from unmask.lab.study.protocol import run_study
from unmask.viewer.explorer import Explorer, LoadedModels
from unmask.viewer.server import Server
from unmask.viewer.studies import StudyFolder

STUDY = {
    "name": "look",
    "seed": 0,
    "tasks": ["unique-list-commit"],
    "axes": ["cardinality"],
    "states": 2,
    "rollouts": 1,
    "temperature": 0.0,
    "models": [{"name": "mini", "model": "mini", "reference": "llada", "options": {"device": "cpu", "dtype": "fp32"}}],
    "splits": {"validation": 2, "evaluation": {"start": 1, "prompts": 2}},
    "steps": {"share": 0.25, "tasks": {"unique-list-commit": 6}},
    "candidates": {"cardinality": ["schedule", "share:0.5", "share:1.0"]},
    "engine": {"rows": 8, "bucket": 32, "prompts": 10},
}


@cache
def mini() -> Model:
    """The package's own model."""
    return load("mini", device="cpu", dtype="fp32")


def run_small_study(folder: Path) -> None:
    """Run a study of it that takes some seconds; the fixture `view_study` has it once for a run of the tests."""
    study = StudyConfig.parse(STUDY)
    assert run_study(study, Store.create(folder, study.config), lambda spec: mini()).complete


@dataclass
class Held(DenoiserWrapper):
    """A slow model: every forward waits to be let go, up to a minute."""

    denoiser: object
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    forwards: int = 0

    def __call__(self, view, needs):
        self.forwards += 1
        self.begun.release()
        assert self.go.acquire(timeout=60)
        return self.denoiser(view, needs)


def held(model: Model) -> Model:
    return replace(model, denoiser=Held(model.denoiser))


def exact(**options) -> Model:
    return load("exact", **options)


@contextmanager
def serving(models=None, study=None, explorer=None):
    """A running server; `models` are loaded models by name."""
    loaders = {name: partial(_given, model) for name, model in (models or {"exact": exact()}).items()}
    explorer = explorer or Explorer(LoadedModels(loaders), study and StudyFolder(study))
    for name in loaders:
        explorer.models.get(name)
    server = Server(explorer)
    ready = threading.Event()
    thread = threading.Thread(target=server.run, args=(ready.set,), daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield Client(server)
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


def _given(model):
    return model


class Client:
    """Sends what a page of the server would send, unless told otherwise."""

    def __init__(self, server: Server):
        self.server = server
        self.host = f"127.0.0.1:{server.port}"

    def open(self, method, path, body=None, *, token=None, headers=None):
        """The answer, not read yet, and its connection. Headers that are None are left out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        usual = {"Host": self.host}
        if method == "POST":
            usual |= {"Origin": f"http://{self.host}", "Content-Type": "application/json"}
        given = {name: value for name, value in (usual | (headers or {})).items() if value is not None}
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.putrequest(method, f"/{self.server.token if token is None else token}/{path}", skip_host=True)
        for name, value in given.items():
            connection.putheader(name, value)
        if content is not None and "Content-Length" not in given:
            connection.putheader("Content-Length", str(len(content)))
        connection.endheaders(content)
        return connection, connection.getresponse()

    def ask(self, method, path, body=None, **how):
        """Status and text."""
        connection, answer = self.open(method, path, body, **how)
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def get(self, path):
        status, text = self.ask("GET", path)
        assert status == 200, text
        return json.loads(text)

    def refused(self, path, body):
        """The reason why a question of the page itself is not answered."""
        status, text = self.ask("POST", path, body)
        if status == 200:
            return dict(events(text))["error"]
        return json.loads(text)["error"]

    def told(self, path, body):
        """The events of a stream by name, the last of each."""
        status, text = self.ask("POST", path, body)
        assert status == 200, text
        found = dict(events(text))
        assert "error" not in found, found["error"]
        return found


def events(text):
    """Names and values of a whole stream."""
    blocks = [block.split("\n") for block in text.split("\n\n") if block.startswith("event: ")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


def next_event(answer):
    """The next event of a stream that goes on."""
    block = []
    while line := answer.readline().decode().strip():
        block.append(line)
    return events("\n".join(block))[0]
