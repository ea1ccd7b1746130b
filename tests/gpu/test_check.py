"""The scripts of this folder, without a GPU: what they compare, when they fail, and what they find in each tree."""

import gzip
import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.gpu import check, kernel_bits
from tests.gpu.names import NAMES, get
from tests.helpers.paths import ROOT

GATE = "1.0 + decay"
"""In the kernel of the gate, where a slip is planted."""


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_found_in_this_tree(name):
    if "triton" in NAMES[name][0] or "kernel" in NAMES[name][0]:
        pytest.importorskip("triton")
    assert get(name) is not None


def bits_of(old, new, *options):
    command = [sys.executable, "-m", "tests.gpu.kernel_bits", str(old), str(new), "--device", "cpu", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def slipped(tmp_path):
    """A copy of the source in which the gate divides by a little more."""
    pytest.importorskip("triton")
    unwanted = shutil.ignore_patterns("*.safetensors", "__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=unwanted)
    (file,) = (path for path in (tmp_path / "src").rglob("*.py") if GATE in path.read_text(encoding="utf-8"))
    file.write_text(file.read_text(encoding="utf-8").replace(GATE, "1.01 + decay"), encoding="utf-8")
    return tmp_path


def test_a_slip_in_a_kernel_is_seen(slipped):
    done = bits_of(ROOT, slipped, "--only", "norm", "gate")
    assert done.returncode == 1, done.stderr
    lines = {line.split("  ")[0]: line for line in done.stdout.splitlines()}
    assert "equal" in lines["norm"]
    assert "DIFFERENT" in lines["gate"]
    assert "different  gate|tiny|fp32|1/0: up to" in done.stdout


def test_what_one_tree_lacks_or_gives_up_is_a_failure(capsys):
    value = ["digest", [1.0]]
    both = {"values": {"gate|mini|bf16|1/0": value}, "failures": {}}
    assert kernel_bits.compare(both, both) == 0
    assert kernel_bits.compare(both, {"values": {}, "failures": {}}) > 0
    assert kernel_bits.compare(both, {**both, "failures": {"gate|mini|bf16": "the plain path runs"}}) == 1
    assert kernel_bits.compare({"values": {}, "failures": {}}, {"values": {}, "failures": {}}) == 1
    assert "FAILED in the new tree  gate|mini|bf16: the plain path runs" in capsys.readouterr().out


def test_noise_is_not_a_failure_and_a_slower_line_is(capsys):
    key, other = ("forward", 1, "eager"), ("decode", 8, "uncached")

    def turns(*values):
        return [{key: value, other: 2.0} for value in values]

    assert check.compare_times({"old": turns(1.0, 1.01), "new": turns(1.05, 1.06)}) == 0
    assert check.compare_times({"old": turns(1.0, 1.01), "new": turns(1.09, 1.08)}) == 1
    # As far apart as the old tree beside itself.
    assert check.compare_times({"old": turns(1.0, 1.2), "new": turns(1.2, 1.2)}) == 0
    assert check.compare_times({"old": turns(1.0, 1.0), "new": [{key: 1.0, other: 2.0}, {key: 1.0}]}) == 1
    out = capsys.readouterr().out
    assert out.count("SLOWER") == 1
    assert "is missing in one of the turns" in out


BENCH = """
import json, sys
from pathlib import Path
assert sys.argv[1:6] == ["all", "--shape", "llada-8b", "--batch", "1,8"], sys.argv
line = {"part": "forward", "batch": 1, "name": "eager", "times": {"median": SECONDS}}
Path(sys.argv[sys.argv.index("--json") + 1]).write_text(json.dumps({"lines": [line]}))
"""
DUMP = """
import gzip, json, sys
import unmask
_, flag, out, name = sys.argv
assert flag == "--in-process"
values = {f"{name}/a": unmask.VALUE, f"words/{name}/a": unmask.__file__}
with gzip.open(f"{out}/{name}.json.gz", "wt") as file:
    json.dump({"package": unmask.__file__, "values": values}, file)
"""


@pytest.fixture
def trees(tmp_path, monkeypatch):
    """An old tree and a new one that only have a value, a bench and a dump: `trees(old=(value, seconds), new=...)`."""

    def make(**sides):
        for side, (value, seconds) in sides.items():
            package = tmp_path / side / "src" / "unmask"
            (package / "lab" / "bench").mkdir(parents=True)
            for folder in (package, package / "lab", package / "lab" / "bench"):
                (folder / "__init__.py").write_text(f"VALUE = {value}\n")
            (package / "lab" / "bench" / "asked.py").write_text(BENCH.replace("SECONDS", str(seconds)))
            (tmp_path / side / "tests").mkdir()
            (tmp_path / side / "tests" / "golden.py").write_text(DUMP)
        monkeypatch.setattr(check, "ROOT", tmp_path / "new")
        monkeypatch.setattr(check, "has_gpu", lambda tree, out: True)
        monkeypatch.setattr(check, "PACKED", tmp_path / "new" / ".gpu")
        return tmp_path / "old"

    return make


def called(monkeypatch, out, *arguments):
    monkeypatch.setattr(sys, "argv", ["check.py", *map(str, arguments), "--out", str(out)])
    return check.main()


@pytest.mark.parametrize(("value", "status"), [(1, 0), (2, 1)])
def test_golden_values_of_both_trees_are_compared(value, status, trees, tmp_path, monkeypatch, capsys):
    old = trees(old=(1, 1.0), new=(value, 1.0))
    assert called(monkeypatch, tmp_path / "out", "values", old, "--only", "golden") == status
    out = capsys.readouterr().out
    assert ("different  gates/a" in out) == bool(status)
    with gzip.open(tmp_path / "out" / "golden-old" / "gates.json.gz", "rt") as file:
        assert str(old) in json.load(file)["package"]


@pytest.mark.parametrize(("seconds", "status"), [(1.0, 0), (1.2, 1)])
def test_times_are_taken_in_turns(seconds, status, trees, tmp_path, monkeypatch, capsys):
    old = trees(old=(1, 1.0), new=(1, seconds))
    assert called(monkeypatch, tmp_path / "out", "times", old) == status
    out = capsys.readouterr().out
    assert [line[:5] for line in out.splitlines()[:4]] == ["old 1", "new 1", "old 2", "new 2"]
    assert ("SLOWER" in out) == bool(status)


def test_a_tree_that_cannot_be_measured_or_is_none_fails(trees, tmp_path, monkeypatch, capsys):
    old = trees(old=(1, '"no number"'), new=(1, 1.0))
    (old / "src" / "unmask" / "lab" / "bench" / "asked.py").write_text("raise SystemExit('no room')")
    assert called(monkeypatch, tmp_path / "out", "times", old) == 1
    assert "no room" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        called(monkeypatch, tmp_path / "out", "values", tmp_path)
    assert "run tests/gpu/pack" in capsys.readouterr().err


def test_a_machine_without_a_gpu_fails(trees, tmp_path, monkeypatch, capsys):
    """There every test would be skipped, and nothing would be compared."""
    old = trees(old=(1, 1.0), new=(1, 1.0))
    monkeypatch.setattr(check, "has_gpu", lambda tree, out: False)
    assert called(monkeypatch, tmp_path / "out", "values", old) == 1
    assert "torch sees no CUDA device" in capsys.readouterr().out


def test_weights_that_were_not_packed_are_linked(trees, tmp_path, monkeypatch):
    old = trees(old=(1, 1.0), new=(1, 1.0))
    for side in ("old", "new"):
        (tmp_path / side / "src" / "unmask" / "shipped" / "mini").mkdir(parents=True)
        (tmp_path / side / "src" / "unmask" / "shipped" / "mini" / "config.json").write_text("{}")
    (tmp_path / "new" / "src" / "unmask" / "shipped" / "mini" / "model.safetensors").write_text("weights")
    check.prepare(old, tmp_path / "out")
    assert (old / "src" / "unmask" / "shipped" / "mini" / "model.safetensors").read_text() == "weights"
    assert os.access(tmp_path / "out" / "bin" / "unmask", os.X_OK)
