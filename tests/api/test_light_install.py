"""The decoder alone: without the packages above it, and with nothing installed but what it needs."""

import re
import shutil
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest
from packaging.requirements import Requirement

import unmask
from tests.helpers.calibrations import made
from tests.helpers.fresh_python import environment, fresh_python
from tests.helpers.paths import ROOT, SRC
from unmask.adapt import Arms, Gate, Lift
from unmask.adapt.diagnostics import DIAGNOSTICS
from unmask.methods import candidates

ABOVE = ("tasks", "train", "lab", "report", "viewer", "view", "look", "cli")
BASE = ("torch", "numpy", "safetensors", "tokenizers", "huggingface-hub", "jinja2", "pydantic", "filelock", "typer")
BASE += ("rich", "jsonschema")

DECODE = """
import sys
import unmask
model = unmask.load("exact")
out = model.generate("a", policy="klass")
assert len(out.text) == 7, out
assert unmask.load("mini", device="cpu").generate("What is 3 + 4?", max_new_tokens=8, steps=4).forwards == 4
assert model.infill("a__d").text[0::3] == "ad"
for options in ({}, {"estimator": "monte-carlo", "samples": 2}, {"estimator": "oracle"}):
    assert model.log_likelihood("abca", **options).log_likelihood < 0
assert model.branch(out, step=1).text == out.text
assert "gate" in model.generate("a", gate=sys.argv[1]).config
assert out._repr_html_() is None
try:
    out.show()
except unmask.UnmaskError as error:
    assert "pip install 'unmask[lab]'" in str(error), error
else:
    raise AssertionError("drawn without what draws")
"""

BLOCK = """
import sys
class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in BLOCKED else self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = map(Without, sys.meta_path)
"""
"""A Python in which the modules named in `BLOCKED` are not installed."""


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_with(names):
    """Names of distributions that these bring with them, themselves included."""
    found, waiting = set(), list(map(normal, names))
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        try:
            needed = [Requirement(line) for line in requires(name) or []]
        except PackageNotFoundError:
            continue  # for another platform
        waiting += [normal(one.name) for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def blocked():
    """Top-level modules that `pip install unmask` does not bring."""
    light = installed_with(BASE)
    modules = {
        module for module, owners in packages_distributions().items() if not light & {normal(name) for name in owners}
    }
    assert {"pandas", "pyarrow", "matplotlib", "sklearn", "starlette", "uvicorn", "ray"} <= modules
    return modules - {"unmask"}


def test_the_base_install_is_that_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {normal(Requirement(line).name) for line in project["dependencies"]} == set(BASE)
    assert set(project["optional-dependencies"]) == {"lab", "viewer", "ray", "s3", "gs", "hf", "dev"}


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    """The file of a gate for `exact`."""
    model = unmask.load("exact")
    calibration = made(list(candidates("llada")["cardinality"]))
    arms = Arms("cardinality", "llada", calibration, DIAGNOSTICS["cardinality"])
    path = tmp_path_factory.mktemp("gate") / "gate.json"
    lift = Lift(value=0.02, low=0.005, high=0.035, how="by hand")
    gate = Gate(model="exact", fingerprint=model.fingerprint, task="carry-rtl", arms=arms, steps_share=0.5, lift=lift)
    gate.save(path)
    return path


def test_decoding_needs_no_package_above_it(tmp_path, gate):
    """Deleted, not only unused: `unmask.load("exact").generate("a")` and what else decodes."""
    shutil.copytree(SRC / "unmask", tmp_path / "unmask", ignore=shutil.ignore_patterns("__pycache__"))
    for package in ABOVE:
        shutil.rmtree(tmp_path / "unmask" / package, ignore_errors=True)
    code = f"{DECODE}\nassert unmask.__file__.startswith({str(tmp_path)!r})"
    run = fresh_python(code, str(gate), env=environment(PYTHONPATH=str(tmp_path)))
    assert run.returncode == 0, run.stderr


def test_decoding_needs_the_base_install_alone(blocked, gate):
    run = fresh_python(f"BLOCKED = {blocked!r}\n{BLOCK}{DECODE}", str(gate))
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    "arguments",
    [["generate", "a", "--model", "exact", "--policy", "klass", "--json"], ["infill", "a__d", "--model", "exact"]],
)
def test_commands_that_decode_need_the_base_install_alone(blocked, arguments):
    code = f"from unmask.cli.app import main; sys.exit(main({arguments}))"
    run = fresh_python(f"BLOCKED = {blocked!r}\n{BLOCK}{code}")
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("unmask.calibrate", "lab"),
        ("unmask.load('exact').generate('a').to_pandas()", "lab"),
        ("unmask.load('masked-lm', path='.')", "hf"),
        ("from unmask.lab.cluster import Ray; unmask.load('exact', cluster=Ray())", "ray"),
    ],
)
def test_missing_extra_is_named(blocked, code, extra):
    run = fresh_python(f"BLOCKED = {blocked!r}\n{BLOCK}import unmask\n{code}")
    assert f"pip install 'unmask[{extra}]'" in run.stderr.strip().splitlines()[-1], run.stderr


@pytest.mark.parametrize(
    ("arguments", "missing", "extra"),
    [(["study", "status", "."], {"pyarrow"}, "lab"), (["view", "--no-open"], {"starlette"}, "viewer")],
)
def test_command_without_its_extra_ends_with_one_line(arguments, missing, extra):
    code = f"from unmask.cli.app import main; sys.exit(main({arguments}))"
    run = fresh_python(f"BLOCKED = {missing!r}\n{BLOCK}{code}")
    assert (run.returncode, run.stderr.count("\n")) == (2, 1), run.stderr
    assert f"pip install 'unmask[{extra}]'" in run.stderr
