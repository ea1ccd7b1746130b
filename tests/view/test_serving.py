"""The server's life."""

import socket
import threading

import pytest

from tests.helpers.view_server import exact, held, next_event, serving
from unmask.base.errors import ConfigError
from unmask.viewer.explorer import Explorer
from unmask.viewer.models import LoadedModels
from unmask.viewer.serving import Server


def test_a_port_in_use_is_said_in_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} .*choose another with --port"):
            Server(Explorer(LoadedModels({})), port)


def test_the_end_leaves_no_thread_and_no_port_even_with_a_run_half_way():
    before, slow = set(threading.enumerate()), held(exact())
    with serving({"slow": slow}) as client:
        port = client.server.port
        connection, answer = client.open("POST", "api/run", {"model": "slow", "prompt": "ab"})
        slow.denoiser.go.release()
        assert next_event(answer)[0] == "start"
        # The forward that waits ends when the model does; the server does not wait for it.
        threading.Timer(0.3, slow.denoiser.go.release).start()
    connection.close()
    assert {thread for thread in threading.enumerate() if thread.name.startswith("view-")} <= before
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


def test_only_this_machine_is_served():
    with serving() as client:
        assert client.server.socket.getsockname()[0] == "127.0.0.1"
