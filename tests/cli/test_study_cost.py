"""`unmask study plan --on ray`: what a cluster takes, said without one."""

import pytest

from tests.helpers.paths import STUDIES

DEMO = str(STUDIES / "demo.toml")


def test_the_document_adds_up(command):
    asked = ("study", "plan", DEMO, "--rate", "20", "--on", "ray", "--workers", "4", "--load-seconds", "3", "--json")
    told = command(*asked).json
    cluster, rows = told["cluster"], told["estimates"]
    assert cluster["wall"] == pytest.approx(sum(phase["wall"] for phase in cluster["phases"]))
    assert cluster["one_worker"] == pytest.approx(3 + sum(row["seconds"] for row in rows))
    assert cluster["gpu_hours"] == pytest.approx(4 * cluster["wall"] / 3600)
    assert all(phase["longest"] <= phase["wall"] <= phase["work"] for phase in cluster["phases"])


def test_the_screen(command):
    ran = command("study", "plan", DEMO, "--rate", "20", "--on", "ray", "--workers", "8", "--gpus-per-worker", "0.5")
    assert ran.code == 0
    assert "8 workers: " in ran.out
    assert "GPU hours" in ran.out
    assert "More workers change nothing for branches of mini: what" in ran.out


def test_without_a_cluster_nothing_is_said_of_one(command):
    told = command("study", "plan", DEMO, "--rate", "20", "--json").json
    assert "cluster" not in told


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["--on", "slurm", "--rate", "9", "--workers", "2"], "--on is 'slurm'; allowed: ray"),
        (["--on", "ray", "--rate", "9"], "--workers is None; allowed: 1 or more with --on ray"),
        (["--on", "ray", "--workers", "2"], "a rate or --measure with --on ray"),
        (["--workers", "2", "--rate", "9"], "--workers is 2; allowed: with --on ray"),
        (["--gpus-per-worker", "1"], "--gpus-per-worker is 1.0; allowed: with --on ray"),
        (["--load-seconds", "0"], "--load-seconds is 0.0; allowed: with --on ray"),
    ],
)
def test_what_is_refused(asked, words, command):
    ran = command("study", "plan", DEMO, *asked)
    assert ran.code == 2
    assert words in ran.err
    assert ran.err.count("\n") == 1
