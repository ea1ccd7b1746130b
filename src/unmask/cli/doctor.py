"""`unmask doctor`: what this machine has, what is missing and what for, and what to do next."""

import json
import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
import typer
from huggingface_hub import constants
from rich.table import Table
from rich.text import Text

from unmask.api import MODELS
from unmask.api.load import load
from unmask.base.environment import versions
from unmask.base.errors import ConfigError, UnmaskError
from unmask.cli.options import DataDir, Json
from unmask.cli.terminal import Console, print_text
from unmask.core import choose_statistics_path
from unmask.models.execution import ENGINES, choose_execution, resolve_device
from unmask.tasks import TASKS, official

FAILED = 1
"""Exit code where nothing can be decoded here."""
OPTIONAL_PACKAGES = (
    ("transformers", "transformers", "masked language models: --model masked-lm", "pip install 'unmask[hf]'"),
    ("ray", "ray", "studies and comparisons on a cluster", "pip install 'unmask[ray]'"),
    ("matplotlib", "matplotlib", "figures of reports and pages", "pip install 'unmask[lab]'"),
    ("pandas", "pandas", "studies, calibrations, to_pandas() of results", "pip install 'unmask[lab]'"),
    ("scikit-learn", "sklearn", "the learned detector of studies", "pip install 'unmask[lab]'"),
    ("starlette", "starlette", "`unmask view`", "pip install 'unmask[viewer]'"),
    ("triton", "triton", "fused kernels on a GPU", "comes with torch for CUDA"),
)
"""Package, module, purpose and how to install it."""
OFFICIAL_FILES = {
    official.GSM8K.name: official.GSM8K_TEST,
    official.HUMANEVAL.name: official.HUMANEVAL_FILE,
    official.JSON_MODE_EVAL.name: official.JSON_MODE_EVAL_FILE,
}


class Finding(NamedTuple):
    """One thing that was looked at; `what` says what was found, or what is missing and what to do."""

    name: str
    ok: bool
    what: str


def doctor(
    data_dir: DataDir = None,
    json_: Json = False,
    quick: Annotated[bool, typer.Option("--quick", help="Do not try a decode.")] = False,
) -> None:
    """Look at this machine: versions, devices, engines, models, data, optional parts, and what to do next.

    Nothing is fetched from a network. Exit code: 0, and 1 where nothing can be decoded. What is optional and missing is
    no failure.

    \b
    Example:
      unmask doctor
    """
    found = {
        "versions": [Finding(name, True, str(text)) for name, text in versions().items()],
        "devices": _check_devices(),
        "engines": _check_engines(),
        "models": [Finding(name, (text := entry.status()).startswith("ready"), text) for name, entry in MODELS.items()],
        "data": _check_data(data_dir),
        "optional": _check_packages(),
        "cache": [_check_cache()],
        "decoding": [] if quick else [_try_decode()],
    }
    found["next"] = _suggest_commands(found)
    if json_:
        print_text(json.dumps({part: [row._asdict() for row in rows] for part, rows in found.items()}, indent=2))
    else:
        console = Console()
        for part, rows in found.items():
            table = Table.grid(padding=(0, 2, 0, 0))
            table.add_column(no_wrap=True)
            table.add_column(overflow="fold", max_width=34)
            table.add_column(overflow="fold")
            for row in rows:
                sign = Text("") if part == "next" else Text("yes", "green") if row.ok else Text("no", "yellow")
                table.add_row(sign, Text(row.name), Text(row.what))
            console.print(Text(part, "bold"), table, "", sep="\n")
    if not all(row.ok for row in found["decoding"]):
        raise typer.Exit(FAILED)


def _check_devices() -> list[Finding]:
    rows = [Finding("cpu", True, f"{os.cpu_count()} cores, {platform.machine()}, {sys.platform}")]
    for at in range(torch.cuda.device_count()) if torch.cuda.is_available() else ():
        device = torch.cuda.get_device_properties(at)
        rows.append(Finding(f"cuda:{at}", True, f"{device.name}, {device.total_memory / 2**30:.0f} GiB"))
    if len(rows) == 1:
        why = "no device answers; see nvidia-smi" if torch.version.cuda else "this torch is built without CUDA"
        rows.append(Finding("cuda", False, f"not used: {why}; only models of billions of parameters need a GPU"))
    return rows


def _check_engines() -> list[Finding]:
    """Say which engine `auto` takes here, and why not another."""
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
    statistics = choose_statistics_path(device)
    return [*rows, Finding("statistics", True, f"{statistics.path} pass over the vocabulary: {statistics.why}")]


def _check_data(data_dir: Path | None) -> list[Finding]:
    """Look for the files of official tasks; generated tasks need none."""
    generated = [name for name, task in TASKS.items() if task.generator]
    rows = [Finding(", ".join(generated), True, "generated here: nothing is needed")]
    folder = data_dir or os.environ.get(official.DATA_VARIABLE)
    for task, file in OFFICIAL_FILES.items():
        cached = Path(constants.HF_HUB_CACHE) / f"datasets--{file.hub.replace('/', '--')}"
        if folder:
            try:
                count = len(official.read_rows(file, Path(folder)))
                rows.append(Finding(task, True, f"{count} rows in {Path(folder) / file.path}"))
            except UnmaskError as error:
                rows.append(Finding(task, False, str(error)))
        elif cached.is_dir():
            rows.append(Finding(task, True, f"in the hub's cache, {cached}"))
        else:
            todo = f"fetched from the hub ({file.hub}) when first used, or name a folder in {official.DATA_VARIABLE}"
            rows.append(Finding(task, False, f"not here: {todo}"))
    return rows


def _check_packages() -> list[Finding]:
    rows = []
    for package, module, purpose, install in OPTIONAL_PACKAGES:
        if find_spec(module) is None:
            rows.append(Finding(package, False, f"not installed: {purpose}; {install}"))
            continue
        try:
            installed = version(package)
        except PackageNotFoundError:
            installed = "installed"
        rows.append(Finding(package, True, f"{installed}, for {purpose}"))
    return rows


def _check_cache() -> Finding:
    """Say whether a checkpoint could be fetched to the folder of the hub's files."""
    place = Path(constants.HF_HUB_CACHE)
    nearest = next(part for part in (place, *place.absolute().parents) if part.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        return Finding("hub cache", False, f"{place} cannot be written; set HF_HOME to a folder of yours")
    return Finding("hub cache", True, f"{place}, {shutil.disk_usage(nearest).free / 1e9:.0f} GB free")


def _try_decode() -> Finding:
    try:
        done = load("mini").generate("2+2", max_new_tokens=4, steps=2)
    except Exception as error:  # Whatever it is, it is what the user has to know.
        return Finding("mini", False, f"{type(error).__name__}: {error}; `unmask --debug generate` shows where")
    return Finding("mini", True, f"decodes on {done.config['model']['device']}")


def _suggest_commands(found: dict[str, list[Finding]]) -> list[Finding]:
    """Return commands to begin with, and what would bring more."""
    if not all(row.ok for row in found["decoding"]):
        return [Finding("unmask --debug generate", True, "decoding fails: this shows where")]
    missing = {row.name for part in ("optional", "data", "models") for row in found[part] if not row.ok}
    rows = [
        Finding("unmask generate --watch", True, "decode something and look on"),
        Finding("unmask compare --model mini", True, "which method needs fewer forwards; writes a page"),
    ]
    if torch.cuda.is_available() and {"llada", "dream"} & missing:
        rows.append(Finding("unmask generate --model llada ...", True, "8 billion parameters; fetches 16 GB once"))
    for package, _, purpose, install in OPTIONAL_PACKAGES[:-1]:
        if package in missing:
            rows.append(Finding(install, True, purpose))
    return [*rows, Finding("unmask --install-completion", True, "complete names with the Tab key")]
