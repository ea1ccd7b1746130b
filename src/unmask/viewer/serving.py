"""The server's life: a socket on this machine alone, an address that is printed, an end that leaves nothing running."""

import asyncio
import socket
from collections.abc import Callable

import uvicorn

from unmask.base.errors import ConfigError
from unmask.viewer.app import make_app
from unmask.viewer.explorer import Explorer
from unmask.viewer.guard import Guard, new_token
from unmask.viewer.sessions import Workers

HERE = "127.0.0.1"
GRACE = 2
"""Seconds that open streams have to end; then they are cut."""
NOTICE = 0.05
"""Seconds until an end that was asked for is noticed."""


class Server:
    """The explorer on a port of this machine; port 0 lets the system choose one."""

    def __init__(self, explorer: Explorer, port: int = 0):
        self.socket = _bound(port)
        # Apart, so that pages open and lists fill while every worker is at a long answer.
        self.workers, self.readers = Workers(), Workers()
        self.token = new_token()
        self.app: Guard = make_app(explorer, self.workers, self.readers, self.token)
        self.app.port = self.port
        config = uvicorn.Config(
            self.app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=GRACE, ws="none"
        )
        self._server = uvicorn.Server(config)

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    @property
    def address(self) -> str:
        """What to open: it holds the token."""
        return f"http://{HERE}:{self.port}/{self.token}/"

    def run(self, on_start: Callable[[], None] = lambda: None) -> None:
        """Serve until Ctrl-C, SIGTERM or `stop`; then no thread and no port is left."""
        try:
            asyncio.run(self._serve(on_start))
        finally:
            for threads in (self.workers, self.readers):
                threads.close()
            self.socket.close()

    def stop(self) -> None:
        """From any thread."""
        self._server.should_exit = True

    async def _serve(self, on_start: Callable[[], None]) -> None:
        serving = asyncio.create_task(self._server.serve(sockets=[self.socket]))
        while not (self._server.started or serving.done()):
            await asyncio.sleep(0.01)
        if not serving.done():
            on_start()
        while not serving.done():
            if self._server.should_exit:
                # Or open streams would keep the server until they are cut.
                for threads in (self.workers, self.readers):
                    threads.dismiss()
            await asyncio.wait({serving}, timeout=NOTICE)
        serving.result()


def _bound(port: int) -> socket.socket:
    """A socket that only this machine reaches."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # A port that a server has just left may be used again at once.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((HERE, port))
    except (OSError, OverflowError) as error:
        made.close()
        why = error.strerror if isinstance(error, OSError) else "not a port"
        raise ConfigError(
            f"port {port} of {HERE} cannot be had ({why}); allowed: a free one, 1024 to 65535, or 0 for any; choose "
            "another with --port"
        ) from error
    return made
