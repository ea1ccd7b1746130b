"""Threads are set before torch is loaded and a user's settings win; limits are seen; code that computes is hashed."""

import os
import subprocess

import pytest

from tests.helpers.fresh_python import environment, fresh_python
from tests.helpers.paths import ROOT, SRC
from unmask.base import environment as machine
from unmask.base.environment import DOES_NOT_COMPUTE, code_fingerprint, code_parts, hash_source, versions

SETTINGS = (*machine.THREAD_COUNT_VARIABLES, *machine.THREAD_WAIT_VARIABLES)


def bare(**changes):
    """An environment in which nobody has said anything about threads."""
    return {name: value for name, value in environment().items() if name not in SETTINGS} | changes


def shown(code, **changes):
    """What a fresh interpreter prints."""
    ended = fresh_python(code, env=bare(**changes))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


SAY = "import os; print(os.environ.get('OMP_WAIT_POLICY'), os.environ.get('OMP_NUM_THREADS'))"
EXPECTED = str(min(4, machine.usable_cores()))


def test_importing_the_package_settles_them():
    assert shown(f"import unmask; {SAY}") == ["PASSIVE", EXPECTED]


def test_torch_computes_with_that_many():
    code = "import unmask, torch; from unmask.base import environment as e; "
    code += "print(torch.get_num_threads(), e.versions()['threads'])"
    assert shown(code) == [EXPECTED, EXPECTED]
    assert shown(code, OMP_NUM_THREADS="1") == ["1", "1"]


def test_the_command_line_settles_them():
    code = f"import sys; from unmask.cli.app import main; assert 'torch' not in sys.modules; {SAY}"
    assert shown(code) == ["PASSIVE", EXPECTED]


def test_nothing_is_touched_once_torch_is_loaded():
    assert shown(f"import torch, unmask; {SAY}") == ["None", "None"]


def test_the_number_of_threads_is_an_option():
    assert shown(f"import unmask; {SAY}", UNMASK_THREADS="3") == ["PASSIVE", "3"]
    assert shown(f"import unmask; {SAY}", UNMASK_THREADS="auto") == ["PASSIVE", EXPECTED]
    assert shown(f"import unmask; {SAY}", UNMASK_THREADS="3", OMP_NUM_THREADS="2") == ["PASSIVE", "2"]
    assert shown(f"import unmask; {SAY}", UNMASK_THREADS="keep") == ["None", "None"]


@pytest.mark.parametrize("value", ["0", "-1", "many", "2.5"])
def test_a_number_of_threads_that_is_none_is_refused(value):
    ended = fresh_python("import unmask", env=bare(UNMASK_THREADS=value))
    assert f"UNMASK_THREADS is '{value}'; allowed: auto, keep or a number from 1 on; leave it unset" in ended.stderr


@pytest.mark.parametrize("name", SETTINGS)
def test_a_users_own_settings_win(name):
    """Where one variable of a group is set, nothing of that group is changed."""
    counts = name in machine.THREAD_COUNT_VARIABLES
    policy = "PASSIVE" if counts else "7" if name == "OMP_WAIT_POLICY" else "None"
    number = EXPECTED if not counts else "7" if name == "OMP_NUM_THREADS" else "None"
    assert shown(f"import unmask; {SAY}", **{name: "7"}) == [policy, number]


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
    assert 1 <= machine.usable_cores() <= len(os.sched_getaffinity(0))
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
    assert list(machine.cpu_limits(tmp_path / "groups", tmp_path / "own")) == cores


def test_no_such_files_mean_no_limit(tmp_path):
    assert list(machine.cpu_limits(tmp_path, tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("files", "lines", "left"),
    [
        ({"memory.max": "3000", "memory.current": "1000"}, "0::/", [2000]),
        ({"memory.max": "max", "memory.current": "1000"}, "0::/", []),
        ({"job/memory.max": "3000", "job/memory.current": "1000"}, "0::/job/inner", [2000]),
        (
            {"memory/job/memory.limit_in_bytes": "3000", "memory/job/memory.usage_in_bytes": "500"},
            "4:cpu,cpuacct:/\n2:memory:/job",
            [2500],
        ),
        ({}, "0::/", []),
    ],
)
def test_a_containers_memory(files, lines, left, tmp_path):
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text + "\n")
    (tmp_path / "own").write_text(lines + "\n")
    assert list(machine.memory_limits(tmp_path / "groups", tmp_path / "own")) == left
    assert (machine.available_memory() or 0) > 2**20


# The fingerprint of the code that computes


def test_what_decodes_scores_and_stores_counts_and_what_shows_does_not():
    """A new module counts until somebody says that it does not: code could change numbers unseen."""
    assert all((SRC / "unmask" / entry).exists() for entry in DOES_NOT_COMPUTE)
    assert {"base", "core", "engine", "models", "tasks", "lab/store"} <= set(code_parts())
    assert {"report", "cli", "lab/bench.py", "train"} <= DOES_NOT_COMPUTE
    assert not DOES_NOT_COMPUTE & set(code_parts())
    assert len(set(code_parts().values())) == len(code_parts())


def test_the_fingerprint_follows_every_part(monkeypatch):
    before = code_fingerprint()
    parts = {**code_parts(), "axes": "other"}
    monkeypatch.setattr(machine, "_hash_parts", lambda: tuple(parts.items()))
    assert code_fingerprint() != before


@pytest.fixture(name="folder")
def _folder(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.py").write_bytes(b"x = 1\ny = 2\n")
    (tmp_path / "inner" / "b.toml").write_bytes(b"z = 3\n")
    return tmp_path


def test_line_ends_and_files_that_python_or_an_editor_leaves_do_not_count(folder):
    before = hash_source(folder)
    (folder / "a.py").write_bytes(b"x = 1\r\ny = 2\r\n")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.pyc").write_bytes(b"compiled")
    (folder / ".a.py.swp").write_text("mine")
    assert hash_source(folder) == before


@pytest.mark.parametrize("change", ["edit", "add", "remove", "move"])
def test_every_change_of_code_or_data_counts(folder, change):
    before = hash_source(folder)
    if change == "edit":
        (folder / "inner" / "b.toml").write_bytes(b"z = 4\n")
    elif change == "add":
        (folder / "c.py").touch()
    elif change == "remove":
        (folder / "inner" / "b.toml").unlink()
    else:
        (folder / "inner" / "b.toml").rename(folder / "b.toml")
    assert hash_source(folder) != before


def test_line_ends_inside_weights_are_numbers(tmp_path):
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"1\r\n2")
    before = hash_source(weights)
    weights.write_bytes(b"1\n2")
    assert hash_source(weights) != before


def test_versions_name_what_bits_depend_on():
    assert set(versions()) == {"unmask", "torch", "numpy", "python", "threads"}
