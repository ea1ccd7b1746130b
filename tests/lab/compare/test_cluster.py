"""A comparison on a cluster: the files of one process, byte for byte, but for the seconds."""

import sys

import pytest

from tests.helpers.local_ray import local_ray
from tests.helpers.own_policies import GOOD
from unmask.cli.app import main
from unmask.lab.compare.store import BATCHES

FILES = ("compare.csv", "summary.md", "summary.json", "figure.svg", "plan.json")
ASKED = ["compare", "--model", "mini", "--device", "cpu", "--task", "carry-rtl", "--prompts", "3", "--batch-size", "2"]
ASKED += ["--steps", "4", "--resamples", "50"]
ARMS = ["--policy", "mine.py:Counted:count=3", "--policy", "mine.py:Raises", "--policy", "soar", "--compute-matched"]
REFUSING = GOOD.replace('raise KeyError("half a character: \\ud800")', 'raise ConfigError("not today")').replace(
    "from unmask.core import Policy\n", "from unmask.base.errors import ConfigError\nfrom unmask.core import Policy\n"
)
CLUSTER = ["--ray", "local", "--workers", "2"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["--workers", "2"], "--workers is 2; allowed: nothing without --ray"),
        (["--ray", "nowhere"], "address is 'nowhere'; allowed: auto, or HOST:PORT"),
        (["--ray", "127.0.0.1:1"], "no Ray cluster answers at '127.0.0.1:1'"),
        (["--ray", "local", "--gpus-per-worker", "1.5"], "gpus_per_worker is 1.5"),
    ],
)
def test_what_is_refused_before_anything_starts(asked, words, capsys):
    assert main([*ASKED, *asked, "--json", "--quiet"]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with a user's policies, which is the current one; a cluster; and the comparison by one process."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "mine.py").write_text(REFUSING, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch, local_ray(cores=3):
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        assert main([*ASKED, *ARMS, "--out", "one"]) == 0
        yield folder


def content(folder):
    return {name: (folder / name).read_bytes() for name in FILES} | {
        path.name: path.read_bytes() for path in (folder / BATCHES).iterdir()
    }


@pytest.mark.cluster
def test_the_same_files(here):
    """Own code, a policy that refuses, a search and its control, which waits for it.

    Begun by one process: what it finished is not decoded again, and what was damaged since is.
    """
    one = content(here / "one")
    (here / "two" / BATCHES).mkdir(parents=True)
    kept, hurt, *_ = sorted((here / "one" / BATCHES).iterdir())
    for path in (here / "one" / "plan.json", kept, hurt):
        (here / "two" / path.relative_to(here / "one")).write_bytes(path.read_bytes())
    (here / "two" / BATCHES / hurt.name).write_text("{}", encoding="utf-8")
    assert main([*ASKED, *ARMS, *CLUSTER, "--out", "two"]) == 0
    two = content(here / "two")
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []
    assert b"mine.py, line" in one["summary.md"]
