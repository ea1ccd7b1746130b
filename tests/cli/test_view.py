"""`unmask view` as a user types it."""

import signal
import socket
import subprocess
import sys
import urllib.request
from dataclasses import replace

import pytest

from tests.helpers.fresh_python import environment
from tests.helpers.view_server import exact
from unmask.api.load import load
from unmask.report.run_data import run_data


@pytest.fixture(scope="module")
def run_file(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs") / "run.npz"
    exact(n=6).generate(["a", "b"], max_new_tokens=4).trajectory.save(place)
    return place


@pytest.mark.slow
def test_it_prints_its_address_and_ends_with_ctrl_c(run_file):
    command = [sys.executable, "-m", "unmask", "view", str(run_file), "--no-open"]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        address = process.stdout.readline().strip()
        assert b"unmask view" in urllib.request.urlopen(address).read()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert "Traceback" not in process.stderr.read()
    port = int(address.split(":")[2].split("/")[0])
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


@pytest.fixture
def saved(tmp_path):
    out = load("exact", n=8).generate(["ab", "cd"], policy="remdm")
    out.trajectory.save(tmp_path / "run.npz")
    return out


def test_a_row_of_a_run_becomes_a_page(command, saved, tmp_path):
    done = command("view", "run.npz", "--export", "run.html")
    assert (done.code, done.out) == (0, "run.html\n")
    assert "2 runs" in (tmp_path / "run.html").read_text(encoding="utf-8")
    assert command("view", "run.npz", "--export", "run.html", "--row", "1").code == 0
    assert "exact decoded by remdm" in (tmp_path / "run.html").read_text(encoding="utf-8")


def test_a_row_of_a_run_becomes_json(command, saved):
    shown = command("view", "run.npz", "--row", "1", "--json").json
    assert shown == run_data(saved.trajectory, 1, load("exact", n=8).codec, top=3)
    assert shown["prompt"] == "cd"


def test_without_a_tokenizer_tokens_are_numbers(command, saved, tmp_path):
    replace(saved.trajectory, config=None).save(tmp_path / "bare.npz")
    bare = command("view", "bare.npz", "--json")
    assert "the run names no model: tokens are shown as numbers; name a tokenizer with --model" in bare.err
    assert bare.json["tokens"][:2] == ["<0>", "<1>"]
    away = {**saved.config, "model": {"name": "some/where", "path": 3}}
    replace(saved.trajectory, config=away).save(tmp_path / "away.npz")
    assert "the tokenizer of some/where is not on this machine" in command("view", "away.npz", "--json").err
    assert command("view", "bare.npz", "--json", "--model", "exact").json["tokens"][:2] == ["a", "b"]


@pytest.mark.slow
def test_a_study_is_exported(run, tmp_path, view_study):
    page = tmp_path / "study.html"
    assert run("view", view_study, "--export", page)[0] == 0
    assert "States of the study look" in page.read_text(encoding="utf-8")
