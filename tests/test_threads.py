"""Threads are settled before torch is loaded, and a user's own settings win."""

import os
import subprocess

import pytest

from tests.helpers.fresh_python import environment, fresh_python
from tests.helpers.paths import ROOT
from unmask import threads

SETTINGS = (*threads.OF_NUMBER, *threads.OF_WAITING)


def bare(**changes):
    """An environment in which nobody has said anything about threads."""
    return {name: value for name, value in environment().items() if name not in SETTINGS} | changes


def shown(code, **changes):
    """What a fresh interpreter prints."""
    ended = fresh_python(code, env=bare(**changes))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


SAY = "import os; print(os.environ.get('OMP_WAIT_POLICY'), os.environ.get('OMP_NUM_THREADS'))"
EXPECTED = str(min(4, threads.usable_cores()))


def test_importing_the_package_settles_them():
    assert shown(f"import unmask; {SAY}") == ["PASSIVE", EXPECTED]


@pytest.mark.slow
def test_torch_computes_with_that_many():
    code = "import unmask, torch; from unmask.threads import count; print(torch.get_num_threads(), count())"
    assert shown(code) == [EXPECTED, EXPECTED]
    assert shown(code, OMP_NUM_THREADS="1") == ["1", "1"]


def test_the_command_line_settles_them():
    code = f"import sys; from unmask.cli.app import main; assert 'torch' not in sys.modules; {SAY}"
    assert shown(code) == ["PASSIVE", EXPECTED]


def test_nothing_is_touched_once_torch_is_loaded():
    assert shown(f"import torch, unmask; {SAY}") == ["None", "None"]


@pytest.mark.parametrize("name", threads.OF_NUMBER)
def test_a_users_number_wins(name):
    given = {"OMP_NUM_THREADS": None, name: "7"}
    assert shown(f"import unmask; {SAY}", **{name: "7"}) == ["PASSIVE", str(given["OMP_NUM_THREADS"])]


@pytest.mark.parametrize("name", threads.OF_WAITING)
def test_a_users_way_of_waiting_wins(name):
    given = {"OMP_WAIT_POLICY": None, name: "1"}
    assert shown(f"import unmask; {SAY}", **{name: "1"}) == [str(given["OMP_WAIT_POLICY"]), EXPECTED]


@pytest.mark.slow
def test_the_number_stands_in_results():
    code = (
        "import json, torch, unmask; torch.set_num_threads(int(os.environ['WANTED']));"
        "out = unmask.load('exact').generate('a');"
        "print(out.config['versions']['threads'], json.loads(out.to_json())['config']['versions']['threads'])"
    )
    for number in ("1", "2"):
        assert shown(f"import os; {code}", WANTED=number) == [number, number]


def test_the_makefile_says_the_same(tmp_path):
    makefile = tmp_path / "Makefile"
    makefile.write_text(f"include {ROOT / 'Makefile'}\nshow:\n\t@echo $$OMP_WAIT_POLICY $$OMP_NUM_THREADS\n")

    def made(**changes):
        command = ["make", "-s", "-f", str(makefile), "show"]
        env = bare(**changes)
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()

    policy, number = made()
    assert (policy, 1 <= int(number) <= 4) == ("PASSIVE", True)
    assert made(OMP_WAIT_POLICY="ACTIVE", OMP_NUM_THREADS="9") == ["ACTIVE", "9"]
    assert made(KMP_BLOCKTIME="5", MKL_NUM_THREADS="2") == []


def test_usable_cores_are_at_most_the_affinity():
    assert 1 <= threads.usable_cores() <= len(os.sched_getaffinity(0))
    one = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{one}}}); import unmask; {SAY}"
    assert shown(code) == ["PASSIVE", "1"]


@pytest.mark.parametrize(
    ("files", "lines", "cores"),
    [
        ({"cpu.max": "150000 100000"}, "0::/", [2]),
        ({"cpu.max": "max 100000"}, "0::/", []),
        ({"cpu.max": "max 100000", "job/cpu.max": "50000 100000"}, "0::/job/inner", [1]),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, "3:cpu,cpuacct:/\n2:memory:/", [3]),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "3:cpu:/", []),
        ({"cpu.max": "a few"}, "0::/", []),
        ({}, "0::/", []),
    ],
)
def test_a_containers_share_of_time(files, lines, cores, tmp_path):
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text + "\n")
    (tmp_path / "own").write_text(lines + "\n")
    assert list(threads._quotas(tmp_path / "groups", tmp_path / "own")) == cores


def test_no_such_files_mean_no_limit(tmp_path):
    assert list(threads._quotas(tmp_path, tmp_path / "none")) == []
