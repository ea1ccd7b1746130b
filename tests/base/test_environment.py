"""Threads are set before torch is loaded, limits are read, and the code that computes results is hashed."""

import pytest

from tests.helpers.fresh_python import environment, fresh_python
from tests.helpers.paths import SRC
from unmask.base import environment as machine
from unmask.base.environment import NOT_FINGERPRINTED, code_parts, hash_source
from unmask.base.errors import ConfigError

SETTINGS = (*machine.THREAD_COUNT_VARIABLES, *machine.THREAD_WAIT_VARIABLES)
PRINT = "import os; print(os.environ.get('OMP_WAIT_POLICY'), os.environ.get('OMP_NUM_THREADS'))"
EXPECTED = str(min(4, machine.usable_cores()))


def output_of(code, **changes):
    """Run code in a fresh interpreter without any setting of threads but these."""
    env = {name: value for name, value in environment().items() if name not in SETTINGS} | changes
    ended = fresh_python(code, env=env)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


def test_import_sets_threads_before_torch_is_loaded():
    assert output_of(f"import unmask; {PRINT}") == ["PASSIVE", EXPECTED]
    assert output_of(f"import torch, unmask; {PRINT}") == ["None", "None"]
    code = "import unmask, torch; from unmask.base import environment as e; "
    code += "print(torch.get_num_threads(), e.versions()['threads'])"
    assert output_of(code, OMP_NUM_THREADS="1") == ["1", "1"]


def configured(**given):
    machine.configure_threads(given)
    return given


def test_a_users_own_settings_are_not_changed(monkeypatch):
    monkeypatch.delitem(machine.sys.modules, "torch", raising=False)
    assert configured(UNMASK_THREADS="3")["OMP_NUM_THREADS"] == "3"
    assert configured(UNMASK_THREADS="auto")["OMP_NUM_THREADS"] == EXPECTED
    assert configured(UNMASK_THREADS="keep") == {"UNMASK_THREADS": "keep"}
    for name in machine.THREAD_COUNT_VARIABLES:
        assert configured(**{name: "7"}) == {name: "7", "OMP_WAIT_POLICY": "PASSIVE"}
    for name in machine.THREAD_WAIT_VARIABLES:
        assert configured(**{name: "7"}) == {name: "7", "OMP_NUM_THREADS": EXPECTED}


@pytest.mark.parametrize("value", ["0", "-1", "many", "2.5"])
def test_a_wrong_number_of_threads_is_refused(value):
    with pytest.raises(ConfigError, match=f"UNMASK_THREADS is '{value}'"):
        configured(UNMASK_THREADS=value)


def write_groups(folder, files, lines):
    for name, text in files.items():
        (folder / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "groups" / name).write_text(text + "\n")
    (folder / "own").write_text(lines + "\n")
    return folder / "groups", folder / "own"


@pytest.mark.parametrize(
    ("files", "lines", "cores"),
    [
        ({"cpu.max": "150000 100000"}, "0::/", [2]),
        ({"cpu.max": "max 100000", "job/cpu.max": "50000 100000"}, "0::/job/inner", [1]),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, "3:cpu,cpuacct:/\n2:memory:/", [3]),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "3:cpu:/", []),
        ({"cpu.max": "a few"}, "0::/", []),
        ({}, "0::/", []),
    ],
)
def test_a_containers_share_of_time_is_read(files, lines, cores, tmp_path):
    assert list(machine.cpu_limits(*write_groups(tmp_path, files, lines))) == cores


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
    ],
)
def test_a_containers_memory_is_read(files, lines, left, tmp_path):
    assert list(machine.memory_limits(*write_groups(tmp_path, files, lines))) == left
    assert (machine.available_memory() or 0) > 2**20


def test_code_that_computes_is_hashed_unless_it_is_listed():
    assert all((SRC / "unmask" / entry).exists() for entry in NOT_FINGERPRINTED)
    assert {"base", "core", "engine", "models", "tasks", "lab/store"} <= set(code_parts())
    assert {"report", "cli", "lab/bench.py", "train"} <= NOT_FINGERPRINTED
    assert not NOT_FINGERPRINTED & set(code_parts())
    assert len(set(code_parts().values())) == len(code_parts())


def test_hashes_depend_on_content_and_names_but_not_on_line_ends(tmp_path):
    def written(**files):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, content in {"a.py": b"x = 1\ny = 2\n", "b.toml": b"z = 3\n", **files}.items():
            if content is not None:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
        return hash_source(folder)

    same = [{}, {"a.py": b"x = 1\r\ny = 2\r\n"}, {"__pycache__/a.pyc": b"compiled", ".a.py.swp": b"mine"}]
    other = [{"b.toml": b"z = 4\n"}, {"c.py": b""}, {"b.toml": None}, {"b.toml": None, "c/b.toml": b"z = 3\n"}]
    assert len({written(**files) for files in same}) == 1
    assert len({written(**files) for files in [{}, *other]}) == 5
    # A pair of bytes in weights that looks like a line end is part of a number.
    assert written(**{"w.safetensors": b"1\r\n2"}) != written(**{"w.safetensors": b"1\n2"})
