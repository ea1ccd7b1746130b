"""Who may ask the explorer: requests of other hosts, other pages and without the token are refused."""

import http.client
import json

import pytest

from tests.helpers.cases import each_case
from tests.helpers.view_server import serving
from unmask.viewer.guard import LARGEST_BODY

RUN = {"model": "exact", "prompt": "ab"}


@pytest.fixture(scope="module")
def client():
    with serving() as client:
        yield client


def test_own_page_is_let_in(client):
    status, text = client.ask("GET", "")
    assert status == 200
    assert "unmask view" in text
    assert client.told("api/run", RUN)["end"]["record"]["model"] == "exact"


@each_case("host", ["example.org", "127.0.0.1", "evil.test:{port}", "127.0.0.1:{port}@evil.test", ""])
@each_case(("method", "path", "body"), [("GET", "api/about", None), ("POST", "api/run", RUN)])
def test_other_hosts_are_refused(client, host, method, path, body):
    name = host.format(port=client.server.port)
    status, text = client.ask(method, path, body, headers={"Host": name})
    assert status == 403
    assert "host" in text


def test_a_request_without_a_host_is_refused(client):
    status, _ = client.ask("GET", "api/about", headers={"Host": None})
    assert status in (400, 403)


@each_case("origin", ["http://evil.test", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1"])
@each_case(("method", "path", "body"), [("GET", "api/about", None), ("POST", "api/run", RUN)])
def test_other_origins_are_refused(client, origin, method, path, body):
    given = {"Origin": origin.format(port=client.server.port)}
    status, text = client.ask(method, path, body, headers=given)
    assert status == 403
    assert "another page" in text


def test_post_without_origin_is_refused(client):
    assert client.ask("POST", "api/run", RUN, headers={"Origin": None})[0] == 403


@each_case("token", ["", "x", "../api", "%00", "{start}", "{token}x", "%e9", "%ed%a0%80"])
@each_case("path", ["", "api/about", "static/view.js"])
def test_requests_without_the_token_are_refused(client, token, path):
    right = client.server.token
    status, text = client.ask("GET", path, token=token.format(start=right[:-1], token=right))
    assert status == 403
    assert right not in text


def test_tokens_are_long_and_differ_between_servers(client):
    with serving() as other:
        assert other.server.token != client.server.token
        assert len(other.server.token) >= 32


def test_large_bodies_are_refused_unread(client):
    status, _ = client.ask("POST", "api/run", b"x" * (LARGEST_BODY + 1))
    assert status == 413
    status, _ = client.ask("POST", "api/run", b"", headers={"Content-Length": "9" * 30})
    assert status in (400, 413)


def test_bodies_without_a_size_are_cut_off(client):
    connection = http.client.HTTPConnection("127.0.0.1", client.server.port, timeout=30)
    headers = {"Host": client.host, "Origin": f"http://{client.host}", "Content-Type": "application/json"}
    pieces = (b"x" * 4096 for _ in range(LARGEST_BODY // 4096 + 2))
    connection.request("POST", f"/{client.server.token}/api/run", pieces, headers, encode_chunked=True)
    answer = connection.getresponse()
    assert answer.status == 413
    assert "too large" in json.loads(answer.read())["error"]
    connection.close()


def test_forms_of_other_pages_are_refused(client):
    """A browser sends such a form without asking; its type cannot be JSON."""
    status, text = client.ask("POST", "api/run", RUN, headers={"Content-Type": "text/plain"})
    assert status == 400
    assert "content-type" in text


def test_every_answer_has_the_security_headers(client):
    for how in ({}, {"token": "wrong"}):
        connection, answer = client.open("GET", "", **how)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe-inline" not in policy
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        connection.close()


@pytest.mark.parametrize("name", ["../app.py", "..%2fapp.py", "app.py", "__init__.py", "%2e%2e/guard.py"])
def test_no_other_file_is_served(client, name):
    assert client.ask("GET", f"front/{name}")[0] == 404
