"""A hub on this machine: the few routes that huggingface_hub asks when it downloads a model, and ways to fail."""

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class Repo:
    """The files of a model under each of its revisions, and how the hub serves it."""

    revisions: dict[str, dict[str, bytes]]
    status: int = 200
    """What every question about the repository is answered with."""
    error_code: str = ""
    """The hub's word for the error, e.g. GatedRepo."""
    token: str = ""
    """Ask for this token."""

    def commit(self, revision: str) -> str | None:
        """The commit of a revision; commits name themselves."""
        for name, files in self.revisions.items():
            commit = hashlib.sha1(name.encode() + b"".join(files.values())).hexdigest()
            if revision in (name, commit):
                return commit
        return None

    def files(self, revision: str) -> dict[str, bytes]:
        commit = self.commit(revision)
        return next(files for name, files in self.revisions.items() if self.commit(name) == commit)


@dataclass
class FakeHub:
    """Serves `repos` until closed. `cut` names files that are sent only in part."""

    repos: dict[str, Repo]
    cut: dict[str, int] = field(default_factory=dict)
    """How many more times the connection breaks in the middle of a file."""
    asked: list[str] = field(default_factory=list)
    """Every request: method and path."""
    tokens: set[str] = field(default_factory=set)
    """Tokens that came with them."""

    def __post_init__(self) -> None:
        handler = type("Handler", (_Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        """Stop answering: connections are refused from now on."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def downloads(self, file: str) -> int:
        return sum(path.startswith("GET ") and path.endswith(f"/{file}") for path in self.asked)


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        token = (self.headers.get("authorization") or "").removeprefix("Bearer ")
        if token:
            self.hub.tokens.add(token)
        asked = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path)
        if asked:
            self._about(asked[1], asked[2] or "revision", asked[3] or "main", token)
            return
        asked = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if asked:
            self._file(asked[1], asked[2], asked[3], token)
            return
        self._send(404, b"{}")

    def _repo(self, name: str, revision: str, token: str) -> Repo | None:
        repo = self.hub.repos.get(name)
        if repo is None:
            # The hub does not say whether a model is missing or private.
            self._send(401, b'{"error": "Invalid username or password."}', {"X-Error-Code": "RepoNotFound"})
        elif repo.status != 200:
            self._send(repo.status, b'{"error": "no"}', {"X-Error-Code": repo.error_code} if repo.error_code else {})
        elif repo.token and token != repo.token:
            self._send(401, b'{"error": "restricted"}', {"X-Error-Code": "GatedRepo"})
        elif repo.commit(revision) is None:
            self._send(404, b'{"error": "Invalid rev id"}', {"X-Error-Code": "RevisionNotFound"})
        else:
            return repo
        return None

    def _about(self, name: str, kind: str, revision: str, token: str) -> None:
        repo = self._repo(name, revision, token)
        if repo is None:
            return
        files = repo.files(revision)
        if kind == "revision":
            siblings = [{"rfilename": file} for file in files]
            document: Any = {
                "id": name,
                "modelId": name,
                "sha": repo.commit(revision),
                "siblings": siblings,
                "tags": [],
            }
        else:
            document = [
                {"type": "file", "path": file, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for file, content in files.items()
            ]
        self._send(200, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _file(self, name: str, revision: str, file: str, token: str) -> None:
        repo = self._repo(name, revision, token)
        if repo is None:
            return
        commit = repo.commit(revision) or ""
        content = repo.files(revision).get(file)
        if content is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
            return
        about = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha256(content).hexdigest()}"', "Accept-Ranges": "bytes"}
        start = re.match(r"bytes=(\d+)-", self.headers.get("Range") or "")
        status = 200
        if start and self.command == "GET":
            begin, size = int(start[1]), len(content)
            about["Content-Range"] = f"bytes {begin}-{size - 1}/{size}"
            content, status = content[begin:], 206
        self._send(status, content, about, file)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None, file: str = "") -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        half = len(body) // 2
        if self.hub.cut.get(file):
            self.hub.cut[file] -= 1
            self.wfile.write(body[:half])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)
        else:
            self.wfile.write(body)
