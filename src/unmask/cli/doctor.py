"""`unmask doctor`: what this machine has, what is missing and what for, and what to do next."""

import json
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from unmask.cli.options import DataDir, Json
from unmask.report.console import Console, say

FAILED = 1
"""Exit code where nothing can be decoded here."""


class OptionalPart(NamedTuple):
    """A package that something of ours uses, and all the rest does without."""

    package: str
    module: str
    serves: str
    install: str


OPTIONAL = (
    OptionalPart(
        "transformers", "transformers", "masked language models: --model masked-lm", "pip install 'unmask[hf]'"
    ),
    OptionalPart("ray", "ray", "studies and comparisons on a cluster", "pip install 'unmask[ray]'"),
    OptionalPart("pandas", "pandas", "studies, calibrations, to_pandas() of results", "pip install 'unmask[lab]'"),
    OptionalPart("scikit-learn", "sklearn", "the learned detector of studies", "pip install 'unmask[lab]'"),
    OptionalPart("triton", "triton", "fused kernels on a GPU", "comes with torch for CUDA"),
    OptionalPart("playwright", "playwright", "tests of pages (developers)", "pip install 'unmask[dev]'"),
)
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    ok: bool
    what: str
    """What was found, or what is missing and what to do."""


def doctor(
    data_dir: DataDir = None,
    json_: Json = False,
    quick: Annotated[bool, typer.Option("--quick", help="Do not try a decode.")] = False,
) -> None:
    """Look at this machine: versions, devices, engines, models, data, optional parts, and what to do next.

    \b
    Exit code: 0, and 1 where nothing can be decoded. What is optional and missing is no failure.

    \b
    Example:
      unmask doctor
    """
    found = examined(data_dir, decode=not quick)
    if json_:
        say(json.dumps({part: [vars(one) for one in rows] for part, rows in found.items()}, indent=2))
    else:
        _show(found)
    if not all(one.ok for one in found["decoding"]):
        raise typer.Exit(FAILED)


def examined(data_dir: Path | None = None, *, decode: bool = True) -> dict[str, list[Finding]]:
    """Everything, by part; nothing is fetched from a network."""
    found = {
        "versions": _versions(),
        "devices": _devices(),
        "engines": _engines(),
        "models": _models(),
        "data": _data(data_dir),
        "optional": _optional(),
        "cache": [_cache()],
        "decoding": [_decoding()] if decode else [],
    }
    return {**found, "next": [Finding(command, True, why) for command, why in _next(found)]}


def _versions() -> list[Finding]:
    from unmask.base.environment import versions

    told = versions()
    told["threads"] = f"{told['threads']} used by torch"
    return [Finding(name, True, text) for name, text in told.items()]


def _devices() -> list[Finding]:
    import torch

    rows = [Finding("cpu", True, f"{os.cpu_count()} cores, {platform.machine()}, {sys.platform}")]
    if torch.cuda.is_available():
        for at in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(at)
            rows.append(Finding(f"cuda:{at}", True, f"{about.name}, {about.total_memory / 2**30:.0f} GiB"))
        return rows
    built = torch.version.cuda
    why = "no device answers; see nvidia-smi" if built else f"this torch ({torch.__version__}) is built without CUDA"
    return [
        *rows,
        Finding("cuda", False, f"not used: {why}; a GPU is needed for models of billions of parameters only"),
    ]


def _engines() -> list[Finding]:
    """Which one `auto` takes here, and why not another."""
    from unmask.base.errors import ConfigError
    from unmask.core import choose_statistics
    from unmask.models.execution import ENGINES, choose_execution, resolve_device

    device = resolve_device("auto")
    chosen = choose_execution("auto", device)
    rows = [Finding(chosen.engine, True, f"in use on {device}: {chosen.why}")]
    for name in ENGINES:
        if name == chosen.engine:
            continue
        try:
            other = choose_execution(name, device)
        except ConfigError:
            rows.append(Finding(name, False, f"needs a CUDA device; this is {device}"))
            continue
        can = other.engine == name
        rows.append(Finding(name, can, f"can be asked for: --model-option engine={name}" if can else other.why))
    passed = choose_statistics(device)
    return [*rows, Finding("statistics", True, f"{passed.path} pass over the vocabulary: {passed.why}")]


def _models() -> list[Finding]:
    from unmask.api import MODELS

    told = {name: entry.status() for name, entry in MODELS.items()}
    return [Finding(name, status.startswith("ready"), status) for name, status in told.items()]


def _data(data_dir: Path | None) -> list[Finding]:
    """Tasks by name: generated ones need nothing, official ones a file."""
    from unmask.tasks import TASKS

    made = [name for name, task in TASKS.items() if task.generator]
    rows = [Finding(", ".join(made), True, "generated here: nothing is needed")]
    return [*rows, *(_file(name, data_dir) for name in TASKS if name not in made)]


def _file(task: str, data_dir: Path | None) -> Finding:
    from unmask.base.errors import UnmaskError
    from unmask.tasks import official

    file = {
        official.GSM8K.name: official.GSM8K_TEST,
        official.HUMANEVAL.name: official.HUMANEVAL_FILE,
        official.JSON_MODE_EVAL.name: official.JSON_MODE_EVAL_FILE,
    }[task]
    folder = data_dir or os.environ.get(official.DATA_VARIABLE)
    if folder:
        try:
            return Finding(
                task, True, f"{len(official.read_rows(file, Path(folder)))} rows in {Path(folder) / file.path}"
            )
        except UnmaskError as error:
            return Finding(task, False, str(error))
    there = _hub_cache() / f"datasets--{file.hub.replace('/', '--')}"
    if there.is_dir():
        return Finding(task, True, f"in the hub's cache, {there}")
    return Finding(
        task,
        False,
        f"not here: fetched from the hub ({file.hub}) when first used, or name a folder in {official.DATA_VARIABLE}",
    )


def _optional() -> list[Finding]:
    rows = []
    for part in OPTIONAL:
        there = find_spec(part.module) is not None
        rows.append(Finding(part.package, there, f"{_version(part)}, for {part.serves}" if there else _lacking(part)))
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    serves = "tests of pages (developers)"
    what = f"{browser}, for {serves}" if browser else f"not found: {serves}; apt-get install chromium"
    return [*rows, Finding("chromium", browser is not None, what)]


def _version(part: OptionalPart) -> str:
    try:
        return version(part.package)
    except PackageNotFoundError:
        return "installed"


def _lacking(part: OptionalPart) -> str:
    return f"not installed: {part.serves}; {part.install}"


def _hub_cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _cache() -> Finding:
    """Whether a checkpoint could be fetched to where the hub's files go."""
    place = _hub_cache()
    there = next(part for part in (place, *place.absolute().parents) if part.exists())
    ok = there.is_dir() and os.access(there, os.W_OK)
    free = f"{shutil.disk_usage(there).free / 1e9:.0f} GB free" if there.is_dir() else "no folder"
    told = f"{place}, {free}" if ok else f"{place} cannot be written; set HF_HOME to a folder of yours"
    return Finding("hub cache", ok, told)


def _decoding() -> Finding:
    """Four tokens of the model in the package: whether anything can be decoded at all."""
    from unmask.api.load import load

    try:
        done = load("mini").generate("2+2", max_new_tokens=4, steps=2)
    except Exception as error:  # Whatever it is, it is what the user has to know.
        return Finding("mini", False, f"{type(error).__name__}: {error}; `unmask --debug generate` shows where")
    return Finding("mini", True, f"decodes on {done.config['model']['device']}")


def _next(found: dict[str, list[Finding]]) -> list[tuple[str, str]]:
    """Commands to begin with, and what would bring more."""
    if not all(one.ok for one in found["decoding"]):
        return [("unmask --debug generate", "decoding fails: this shows where")]
    lacking = {one.name for part in ("optional", "data", "models") for one in found[part] if not one.ok}
    gpu = any(one.ok and one.name.startswith("cuda") for one in found["devices"])
    steps = [
        ("unmask generate --watch", "decode something and look on"),
        ("unmask compare --model mini", "which method needs fewer forwards; writes a page"),
    ]
    if gpu and {"llada", "dream"} & lacking:
        steps.append(("unmask generate --model llada ...", "a model of 8 billion parameters; fetches 16 GB once"))
    steps += [(part.install, part.serves) for part in OPTIONAL[:5] if part.package in lacking]
    steps.append(("unmask --install-completion", "names of commands, models and methods with the Tab key"))
    return steps


def _show(found: dict[str, list[Finding]]) -> None:
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for part, rows in found.items():
        if not rows:
            continue
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold", max_width=34)
        table.add_column(overflow="fold")
        for one in rows:
            sign = Text("") if part == "next" else Text("yes", "green") if one.ok else Text("no", "yellow")
            table.add_row(sign, Text(one.name), Text(one.what))
        console.print(Text(part, "bold"))
        console.print(table)
        console.print()
