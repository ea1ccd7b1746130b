"""Golden dump: everything that a user of unmask can see, as values to compare before and after a change.

    python tests/golden.py OUT [SECTION ...]     # writes OUT/SECTION.json.gz, one file per section
    python tests/golden_compare.py check         # dumps, and compares with tests/golden_values

A section is a generator of pairs (key, value). Sections use the public Python API, the command line and documented
file formats alone, so that they survive a rewrite of everything else. When a command or a keyword is renamed, the
call here changes and its key stays.

A key that begins with `words/` holds sentences, which nobody compares. A key that begins with `machine/` holds bits
that depend on the processor (packed trajectories, trained weights, hashes over floats); only two dumps of one machine
are compared there. All other values are compared everywhere: floats within a tolerance, the rest exactly.
"""

import argparse
import csv
import gzip
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Pairs = Iterator[tuple[str, Any]]

# Fields that change although no result does.
DROPPED = {
    "versions", "code", "code_fingerprint", "unmask", "seconds", "created", "made", "threads", "when", "timing", "time",
    "files", "out", "path", "device_name", "speed",
}  # fmt: skip
# Fields that hold a sentence about a number. Whether there is one is compared; the wording goes under `words/`.
SENTENCES = {
    "unreliable", "partial", "theta_reason", "tau_reason", "never", "made_for", "unavailable", "why", "remark",
    "remarks", "note",
}  # fmt: skip
# Fields whose value is a hash over floats.
MACHINE = {"content_hash", "sha256", "hash", "trajectory"}

MINI_PROMPTS = ["Add 2 and 3.", "List four fruits, no two alike, inside <answer>...</answer>."]
HTML = (
    "A page was cut off after <main><section><p>hello. Give only the missing closing tags inside <answer>...</answer>."
)
PROMPTS = {"exact": ["ab", "c"], "mini": [*MINI_PROMPTS, HTML], "mini-dream": [*MINI_PROMPTS, HTML]}
CPU = {"device": "cpu", "dtype": "fp32"}
# Settings without which a method refuses, or does nothing special on short answers.
SETTINGS: dict[str, dict[str, Any]] = {
    "vsb": {"window": 4},
    "order-token-search": {"block_length": 4},
    "wino": {"block_length": 8},
    "klass": {"threshold": 0.6},
    "core": {"revise_every": 1, "tail": 0, "candidates": 4, "window": (0.0, 1.0)},
    "fast-dllm": {"threshold": 0.6, "block_length": 8},
}
SETTINGS_OF_EXACT = {"wino": {"block_length": 3}, "fast-dllm": {"threshold": 0.6, "block_length": 3}}

CONSTRUCTED = [
    "csv-missing-cells", "multi-span-cloze", "carry-rtl", "td07-sparse-mask", "constrained-json-fill",
    "unique-list-commit", "html-close-tags",
]  # fmt: skip
OFFICIAL_ROWS = 10
WITH_DATA = ("official", "humaneval")
"""Sections that read the official data files; without these files they are left out, with a line that says so."""

STUDY = """
name = "golden"
seed = 3
tasks = ["unique-list-commit", "carry-rtl"]
axes = ["score", "region", "cardinality", "commitment"]
states = 2
rollouts = 2
temperature = {temperature}
diagnostics = ["score", "region", "cardinality", "commitment"]
end_to_end = true
{more}
[[models]]
name = "m"
model = "{model}"
reference = "{reference}"
options = {{ device = "cpu", dtype = "fp32" }}
[splits]
validation = 4
evaluation = 4
[steps]
share = 0.25
tasks = {{ unique-list-commit = 6 }}
[candidates]
score = ["{own}", "margin", "uniform"]
region = ["full", "block:8", "dilated:2"]
commitment = ["all", "none"]
[revision]
variant = "conf"
[engine]
rows = 8
bucket = 32
prompts = 4
waiting = 4096
"""
POLICY_STUDY = """
name = "golden"
seed = 3
tasks = ["mine"]
axes = ["policy"]
states = 2
rollouts = 2
temperature = 0.5
[own.mine]
prompts = "mine.jsonl"
score = "score.py:score"
horizon = 16
[[models]]
name = "m"
model = "mini"
reference = "llada"
options = { device = "cpu", dtype = "fp32" }
[splits]
validation = 4
evaluation = 4
[steps]
share = 0.5
[candidates]
policy = ["llada", "klass:window=1,threshold=0.0", "wino:block_length=8", "info-gain:threshold=none", "dus"]
[engine]
rows = 8
bucket = 32
prompts = 4
waiting = 4096
"""
# A scorer under which almost every two answers differ, so that gates have something to gain.
SCORER = """
import zlib

def score(text, example):
    return zlib.crc32(f"{text} {example['id']} 3".encode()) % 9 / 8
"""


def plain(value: Any) -> Any:
    """A value in the types of JSON, without what may change."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items() if key not in DROPPED}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, bool) or value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)


def split_kinds(key: str, value: Any) -> Pairs:
    """The pair itself, its sentences under `words/` and its hashes over floats under `machine/`."""
    words: list[Any] = []
    machine: list[Any] = []

    def keep(inner: Any) -> Any:
        if isinstance(inner, list):
            return [keep(entry) for entry in inner]
        if not isinstance(inner, dict):
            return inner
        kept = {}
        for name, entry in inner.items():
            if name in MACHINE:
                machine.append([name, entry])
            elif name in SENTENCES and isinstance(entry, str):
                words.append([name, entry])
                kept[name] = bool(entry)
            else:
                kept[name] = keep(entry)
        return kept

    yield key, keep(value)
    if words:
        yield f"words/{key}", words
    if machine:
        yield f"machine/{key}", machine


def unmask(*arguments: Any, ok: tuple[int, ...] = (0,)) -> str:
    """Standard output of a command as a user types it."""
    command = [sys.executable, "-m", "unmask", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in ok, f"{' '.join(command[2:])}: exit code {done.returncode}\n{done.stderr[-2000:]}"
    return done.stdout


def read_csv(path: Path) -> dict[str, list[Any]]:
    """Columns of a CSV file. A column whose cells are all whole numbers or empty holds integers, else floats."""
    with open(path, encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    columns: dict[str, list[Any]] = {}
    for i, name in enumerate(head):
        cells = [row[i] for row in rows]
        if any(word in name for word in ("second", "wall", "hours")):
            continue
        if name in SENTENCES:
            columns[name] = [bool(cell) for cell in cells]
        elif all(cell.lstrip("-").isdigit() or not cell for cell in cells):
            columns[name] = [int(cell) if cell else "" for cell in cells]
        else:
            columns[name] = [plain(_number(cell)) for cell in cells]
    return columns


def _number(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def decoded(out: Any) -> dict[str, Any]:
    """A generation: rows, costs, and every change of every step."""
    document = json.loads(out.to_json())
    frame = out.trajectory.to_pandas()[["row", "step", "position", "token", "confidence", "signal"]]
    steps = {name: plain(frame[name].tolist()) for name in frame}
    return {"result": plain({k: v for k, v in document.items() if k != "config"}), "steps": steps}


def config_of(out: Any) -> Any:
    return plain(json.loads(out.to_json())["config"])


# Decoding.


def decode(name: str, new_tokens: int) -> Pairs:
    """Each method at two temperatures, with half as many steps as tokens."""
    import unmask as package

    model = package.load(name)
    for method in package.METHODS:
        settings = SETTINGS | SETTINGS_OF_EXACT if name == "exact" else SETTINGS
        for temperature in (0.0, 0.7):
            key = f"{method}/t{temperature}"
            shared = {"policy": method, "max_new_tokens": new_tokens, "temperature": temperature, "seed": 1}
            try:
                out = model.generate(PROMPTS[name], steps=new_tokens // 2, **shared, **settings.get(method, {}))
            except package.UnmaskError as refused:
                yield key, f"refused: {type(refused).__name__}"
                yield f"words/{key}", str(refused)
                continue
            yield key, decoded(out)
            yield f"config/{key}", config_of(out)


def decode_exact(folder: Path) -> Pairs:
    yield from decode("exact", 6)


def decode_mini(folder: Path) -> Pairs:
    yield from decode("mini", 16)


def decode_mini_dream(folder: Path) -> Pairs:
    yield from decode("mini-dream", 16)


def default_steps(folder: Path) -> Pairs:
    """The only calls without `steps`: a change of the default changes these three values and no other."""
    import unmask as package

    for name, method in (("exact", "llada"), ("mini", "llada"), ("mini-dream", "dream")):
        yield name, decoded(package.load(name).generate(PROMPTS[name], policy=method, max_new_tokens=6, seed=1))


def options(folder: Path) -> Pairs:
    """Every option of `generate` once; infilling, branches and saved runs."""
    import unmask as package

    model, exact = package.load("mini"), package.load("exact")
    blocks = {"policy": "fast-dllm", "block_length": 8}
    for i, extra in enumerate([
        {"steps": 5}, {"temperature": 0.9, "top_p": 0.8}, {"temperature": 0.9, "top_k": 3},
        {"temperature": 1.0, "sampler": "gumbel"}, {"cfg_scale": 1.5}, {"samples": 3, "temperature": 1.0},
        {"seed": 7, "temperature": 1.0}, {"eos_fill": True}, {"logits_eos_inf": True},
        {"confidence_eos_eot_inf": True}, {"eos_penalty": 2.0}, {"cache": "prefix", **blocks},
        {"cache": "dual", **blocks}, {"record_top": 4}, {"policy": "llada", "block_length": 8, "remasking": "random"},
        {"policy": "dream", "alg": "topk_margin", "temperature": 0.5},
        {"score": "margin", "region": "block:8", "cardinality": "eb:0.1", "commitment": "remdm-conf"},
        {"score": "certainty", "region": "window:6", "cardinality": "above:0.7"},
        {"policy": "fixed", "alpha": "dependency", "region": "near:2", "kappa": "share:0.5"},
    ]):  # fmt: skip
        out = model.generate(PROMPTS["mini"], **{"max_new_tokens": 16, "steps": 8, **extra})
        yield f"generate/{i:02}", decoded(out)
        yield f"config/{i:02}", config_of(out)
    for name in ("llada", "wino", "core", "remdm", "info-gain", "dream", "p2"):
        settings = {"block_length": 4} if name == "wino" else {}
        texts = ["ab__[MASK]d", "a__d____"]
        yield f"infill/{name}", decoded(exact.infill(texts, policy=name, steps=2, temperature=0.5, **settings))
    first = model.generate(MINI_PROMPTS, policy="klass", max_new_tokens=16, steps=8, temperature=0.7)
    for step in range(0, 6, 2):
        yield f"branch/{step}", decoded(model.branch(first, row=1, step=step, policy="llada"))
        yield f"branch/same/{step}", decoded(model.branch(first, row=0, step=step))
    first.trajectory.save(str(folder / "run.npz"))
    yield "machine/npz", (folder / "run.npz").read_bytes()
    yield "show", plain(json.loads(unmask("view", folder / "run.npz", "--json")))


def likelihood(folder: Path) -> Pairs:
    """Exact, Monte-Carlo and oracle log-likelihoods of texts."""
    for name, texts in (("exact", ["abcd", "aabb"]), ("mini", ["2 + 3 = 5", "apple, pear"])):
        for key, flags in {
            "default": [],
            "klass": ["--policy", "klass"],
            "monte-carlo": ["--estimator", "monte-carlo", "--samples", 8],
            "oracle": ["--estimator", "oracle"],
        }.items():
            found = json.loads(unmask("likelihood", "--model", name, "--json", *flags, *texts))
            yield f"words/{name}/{key}", found.pop("quantity")
            yield f"{name}/{key}", plain(found)


def checkpoints(folder: Path) -> Pairs:
    """Small checkpoints in the formats of LLaDA and Dream: load, generate, score."""
    import unmask as package
    from tests.helpers import scaled

    for name, write in (("llada", scaled.llada), ("dream", scaled.dream)):
        write(folder / name)
        model = package.load(str(folder / name), **CPU)
        for method in (name, "klass", "remdm"):
            for temperature in (0.0, 0.7):
                out = model.generate(
                    ["Hello there", "2 + 3"], policy=method, max_new_tokens=12, steps=6, temperature=temperature
                )
                yield f"{name}/{method}/t{temperature}", decoded(out)
        yield f"{name}/config", config_of(out)
        texts = ["hello there", "two words"]
        flags = ["--device", "cpu", "--dtype", "fp32", "--json"]
        found = json.loads(unmask("likelihood", "--model", folder / name, *flags, *texts))
        yield f"words/{name}/score", found.pop("quantity")
        yield f"{name}/score", plain(found)


# Tasks.


def export(folder: Path, names: list[str], *flags: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of the exported files, by the files' names."""
    unmask("tasks", "show", *names, "--out", folder / "tasks", *flags)
    paths = sorted((folder / "tasks").glob("*.jsonl"))
    return {path.name: [json.loads(line) for line in path.read_text("utf-8").splitlines()] for path in paths}


def verdicts(folder: Path, task: str, split: str, answers: list[tuple[str, str]]) -> Any:
    """The verdicts of `tasks score` on pairs (id, text)."""
    file = write_lines(folder / "answers.jsonl", [{"id": id_, "text": text} for id_, text in answers])
    return plain(json.loads(unmask("tasks", "score", task, "--split", split, "--predictions", file, "--json")))


def target_of(example: dict[str, Any]) -> str:
    target = example["target"]
    return target if isinstance(target, str) else json.dumps(target)


ANSWERS: dict[str, Callable[[int, str, str], str]] = {  # (index, target, the target before) -> what a model might write
    "gold": lambda i, target, other: f"<answer>{target}</answer>",
    "bare": lambda i, target, other: target,
    "prose": lambda i, target, other: f"Sure! Here it is:\n```\n{target}\n```\nHope this helps.",
    "cut": lambda i, target, other: f"<answer>{target[: 1 + len(target) * (i % 5) // 5]}",
    "other": lambda i, target, other: f"<answer>{other}</answer>",
    "headed": lambda i, target, other: f"See item #### {i} of the list.\nThe answer is {target}",
    "upper": lambda i, target, other: f"<answer> {target.upper()} . </answer>",
    "nothing": lambda i, target, other: ["", "<answer></answer>", "I cannot say.", "[]", "\u00e9\n\n,,"][i % 5],
}


def verdicts_of_kinds(folder: Path, task: str, examples: list[dict[str, Any]]) -> Pairs:
    """Verdicts on each kind of answer."""
    targets = [target_of(example) for example in examples]
    for kind, write in ANSWERS.items():
        texts = [write(i, target, targets[i - 1]) for i, target in enumerate(targets)]
        found = verdicts(folder, task, "validation", [(e["id"], text) for e, text in zip(examples, texts, strict=True)])
        yield f"score/{task}/{kind}", found


def tasks(folder: Path) -> Pairs:
    """Every example of every constructed task, and verdicts on answers made from the targets."""
    exported = export(folder, CONSTRUCTED)
    for name in exported:
        yield f"export/{name}", (folder / "tasks" / name).read_bytes()
    for task in CONSTRUCTED:
        yield from verdicts_of_kinds(folder, task, exported[f"{task}.validation.jsonl"])


def official(folder: Path) -> Pairs:
    """The first rows of each split of the official tasks, and verdicts on answers to them."""
    exported = export(folder, ["gsm8k", "json-mode-eval", "humaneval"])
    for name, examples in exported.items():
        yield f"export/{name}", plain(examples[:OFFICIAL_ROWS])
        yield f"ids/{name}", [example["id"] for example in examples]
    for task in ("gsm8k", "json-mode-eval"):
        yield from verdicts_of_kinds(folder, task, exported[f"{task}.validation.jsonl"][:OFFICIAL_ROWS])


COMPLETIONS: dict[str, Callable[[str, str, str], str]] = {  # (beginning, solution, its name) -> completion
    "body": lambda start, body, name: body,
    "whole": lambda start, body, name: start + body,
    "fenced": lambda start, body, name: f"Sure:\n```python\n{start}{body}```\nThis is right.",
    "tagged": lambda start, body, name: f"<answer>{start}{body}</answer>",
    "none": lambda start, body, name: "    return None\n",
    "raises": lambda start, body, name: "    raise ValueError('no')\n",
    "undefined": lambda start, body, name: "    return not_there\n",
    "broken": lambda start, body, name: start + "    return (\n",
    "exits": lambda start, body, name: "    import sys\n    sys.exit(0)\n",
    "endless": lambda start, body, name: "    while True:\n        pass\n",
    "writes": lambda start, body, name: "    open('there.txt', 'w').write('x')\n" + body,
    "prose": lambda start, body, name: f"The function {name} cannot be written.",
}


def humaneval(folder: Path) -> Pairs:
    """Verdicts on 24 completions: pass, fail, error, timeout."""
    examples = export(folder, ["humaneval"], "--split", "development")["humaneval.development.jsonl"]
    answers = []
    for i, example in enumerate(examples):
        start = example["prompt"].split("\n\n", 1)[1]
        name = start.rsplit("def ", 1)[1].split("(")[0]
        write = list(COMPLETIONS.values())[i % len(COMPLETIONS)]
        answers.append((example["id"], write(start, target_of(example), name)))
    yield "score", verdicts(folder, "humaneval", "development", answers)


# The laboratory.


def tables_of(store: Path) -> Pairs:
    """All tables of a study by column, rows in the order of their keys."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = ["model", "task", "split", "prompt", "state", "axis", "candidate", "arm", "diagnostic", "draw", "rollout"]
    parts: dict[str, list[Any]] = {}
    for path in sorted(store.rglob("*.parquet")):
        parts.setdefault(path.stem, []).append(pq.read_table(path, partitioning=None))
    for name, found in sorted(parts.items()):
        table = pa.concat_tables(found, promote_options="permissive")
        by = [key for key in keys if key in table.column_names]
        rows = sorted(table.to_pylist(), key=lambda row: [str(row[key]) for key in by])
        for column in table.column_names:
            cells = plain([row[column] for row in rows])
            if column == "ingredients":
                # JSON in a text: read, so that its floats are compared as floats.
                cells = [plain(json.loads(cell)) for cell in cells]
            yield f"{'machine/' if column in MACHINE else ''}tables/{name}/{column}", cells


def run_study(folder: Path, text: str) -> Pairs:
    """A study from its file to the report's files."""
    (folder / "study.toml").write_text(text, "utf-8")
    yield "machine/hashes", unmask("study", "run", folder / "study.toml", "--out", folder / "store", "--quiet")
    yield from tables_of(folder / "store")
    found = json.loads(unmask("study", "report", folder / "store", "--out", folder / "report", "--json"))
    for key in ("answer", "notes", "warnings"):
        yield f"words/report/json/{key}", plain(found[key])
    yield "machine/report/json/hashes", plain(found["hashes"])
    yield "report/json/study", plain({"study": found["manifest"]["study"], "tasks": found["manifest"]["tasks"]})
    yield "report/json/complete", plain({key: found[key] for key in ("complete", "unreliable_below", "resamples")})
    for name, table in found["tables"].items():
        yield from split_kinds(f"report/json/{name}", plain(table))
    for path in sorted((folder / "report").rglob("*.csv")):
        yield f"report/{path.relative_to(folder / 'report')}", read_csv(path)


def study_mini(folder: Path) -> Pairs:
    yield from run_study(
        folder, STUDY.format(model="mini", reference="llada", temperature=0.0, own="confidence", more="")
    )


def study_dream_drawn(folder: Path) -> Pairs:
    """With drawn tokens, two searches, and too few prompts for a learned detector."""
    more = 'learned = true\nsearches = ["lookum", "soar:width=2"]\n'
    yield from run_study(
        folder, STUDY.format(model="mini-dream", reference="dream", temperature=0.7, own="entropy", more=more)
    )


def study_learned(folder: Path) -> Pairs:
    """The learned detector, which needs ten validation prompts whose states have a signal."""
    axes = '"score", "region", "cardinality", "commitment"'
    text = STUDY.format(model="mini", reference="llada", temperature=0.0, own="confidence", more="learned = true\n")
    for old, new in {
        '"unique-list-commit", "carry-rtl"': '"unique-list-commit"',
        axes: '"score"',
        "end_to_end = true": "end_to_end = false",
        "validation = 4": "validation = 14",
        'region = ["full", "block:8", "dilated:2"]\ncommitment = ["all", "none"]\n[revision]\nvariant = "conf"\n': "",
    }.items():
        assert old in text, old
        text = text.replace(old, new)
    yield from run_study(folder, text)


def own_task(folder: Path, **fields: str) -> list[Any]:
    """Write a task of eight prompts, each with these fields too, and its scorer; flags that name both."""
    words = ["cat", "plum", "seven", "river", "stone", "green", "paper", "cloud"]
    rows = [{"prompt": f"Spell {w} backwards.", "target": w[::-1], "id": w, **fields} for w in words]
    write_lines(folder / "mine.jsonl", rows)
    (folder / "score.py").write_text(SCORER, "utf-8")
    return ["--task", folder / "mine.jsonl", "--scorer", f"{folder / 'score.py'}:score", "--max-new-tokens", 16]


def study_policy(folder: Path) -> Pairs:
    """Whole methods as candidates, on a task of one's own."""
    own_task(folder)
    yield from run_study(folder, POLICY_STUDY)


def calibrate(folder: Path, axis: str, name: str, *flags: Any) -> Pairs:
    """A gate: its file, and decoding with it."""
    import unmask as package

    file = folder / f"{name}.json"
    unmask("calibrate", "--model", "mini", "--axis", axis, "--device", "cpu", "--dtype", "fp32", "--out", file,
           "--quiet", *flags)  # fmt: skip
    yield from split_kinds(f"file/{name}", plain(json.loads(file.read_text("utf-8"))))
    yield f"machine/bytes/{name}", file.read_bytes()
    out = package.load("mini").generate(MINI_PROMPTS, gate=str(file), max_new_tokens=32, steps=8)
    yield f"decode/{name}", decoded(out)


def gates(folder: Path) -> Pairs:
    """A gate for each axis."""
    small = ["--task", "unique-list-commit", "--prompts", 4, "--states", 2, "--rollouts", 2, "--steps-share", 0.125]
    for axis in ("score", "region", "cardinality", "commitment"):
        yield from calibrate(folder, axis, axis, *small)


def guarantee(folder: Path) -> Pairs:
    """Gates on a task of one's own: without a guarantee, with one that is given, and with one that cannot be given."""
    small = [*own_task(folder, split="validation"), "--prompts", 8, "--states", 4, "--rollouts", 2]
    small += ["--steps-share", 0.5]
    yield from calibrate(folder, "region", "plain", *small)
    yield from calibrate(folder, "cardinality", "given", *small, "--guarantee", 0.5, "--margin", 0.9)
    yield from calibrate(folder, "cardinality", "refused", *small, "--guarantee", 0.001, "--margin", 0.01)


def methods(folder: Path) -> Pairs:
    """Registered names with settings, presets and labels; worked examples of a few."""
    for card in json.loads(unmask("methods", "--json")):
        words = {key: card.pop(key, None) for key in ("about", "citation", "differs", "example", "made_for")}
        yield f"words/list/{card['name']}", words
        yield f"list/{card['name']}", plain(card)
    for name in ("llada", "klass", "wino", "core"):
        yield f"example/{name}", plain(json.loads(unmask("methods", "show", name, "--example", "--json")))


def compare(folder: Path) -> Pairs:
    arms = [a for p in ("llada", "klass", "wino:block_length=8", "remdm") for a in ("--policy", p)]
    named = ["--model", "mini", "--task", "unique-list-commit", "--task", "html-close-tags", "--prompts", 2]
    shape = ["--steps", 8, "--axis", "region", "--resamples", 200, "--device", "cpu", "--dtype", "fp32"]
    found = unmask("compare", *named, *shape, *arms, "--out", folder / "compare", "--json")
    yield from split_kinds("summary", plain(json.loads(found)))
    yield "csv", read_csv(folder / "compare" / "compare.csv")


def demo(folder: Path) -> Pairs:
    """Expected utilities on enumerable problems; the study beside them is as small as can be."""
    text = STUDY.format(model="mini", reference="llada", temperature=0.0, own="confidence", more="")
    for old, new in {
        '"unique-list-commit", "carry-rtl"': '"carry-rtl"',
        " unique-list-commit = 6 ": "",
        "end_to_end = true": "end_to_end = false",
        "validation = 4\nevaluation = 4": "validation = 2\nevaluation = 2",
        'axes = ["score", "region", "cardinality", "commitment"]': 'axes = ["region"]',
        'diagnostics = ["score", "region", "cardinality", "commitment"]': 'diagnostics = ["region"]',
        'score = ["confidence", "margin", "uniform"]\n': "",
        'commitment = ["all", "none"]\n[revision]\nvariant = "conf"\n': "",
    }.items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / "study.toml").write_text(text, "utf-8")
    study = ["--study", folder / "study.toml", "--quiet"]
    unmask("demo", "--out", folder / "demo", "--problems", 1, "--seeds", 4, *study)
    for path in sorted((folder / "demo").glob("*.csv")):
        yield path.name, read_csv(path)


def train(folder: Path) -> Pairs:
    """A few steps of the smallest configuration; its weights to the bit, on this machine."""
    unmask("train", "--config", ROOT / "configs" / "smoke.toml", "--out", folder / "train", "--steps", 20)
    for path in sorted((folder / "train" / "model").iterdir()):
        yield f"machine/{path.name}", path.read_bytes()
    yield "files", sorted(path.name for path in (folder / "train" / "model").iterdir())


SECTIONS: dict[str, Callable[[Path], Pairs]] = {
    section.__name__: section
    for section in (  # long ones first, so that two processes end together
        study_dream_drawn, study_mini, gates, compare, guarantee, decode_mini, decode_mini_dream, demo, tasks, options,
        study_policy, study_learned, humaneval, likelihood, train, checkpoints, decode_exact, default_steps, methods,
        official,
    )
}  # fmt: skip
QUICK = ("decode_exact", "decode_mini", "default_steps", "methods", "study_mini")
"""The sections that `make test` compares: each method once on a network, and one study."""


def data_folder() -> Path | None:
    """The official data files: UNMASK_DATA, else the folder beside the checkout."""
    named = os.environ.get("UNMASK_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    return folder.resolve() if folder.is_dir() else None


def environment() -> dict[str, str]:
    """For processes that run the code of this checkout, whatever package is installed."""
    defaults = {"OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "HF_HUB_OFFLINE": "1"}
    data = data_folder()
    fixed = {"PYTHONPATH": str(ROOT / "src"), **({"UNMASK_DATA": str(data)} if data else {})}
    return {**defaults, **os.environ, **fixed}


def dump_section(name: str, out: Path) -> None:
    """Write the values of one section, in this process."""
    import unmask as package

    package_file = Path(package.__file__).resolve()
    if not package_file.is_relative_to(ROOT / "src"):
        raise SystemExit(f"unmask was imported from {package_file}, which is outside {ROOT / 'src'}")
    values: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        for key, value in SECTIONS[name](Path(folder)):
            kind, inner = key.split("/", 1) if key.startswith(("words/", "machine/")) else ("", key)
            full = f"{kind}/{name}/{inner}" if kind else f"{name}/{inner}"
            assert full not in values, f"two values of {full}"
            values[full] = json.loads(json.dumps(plain(value)).replace(folder, "FOLDER"))
    with gzip.open(out / f"{name}.json.gz", "wt", encoding="utf-8") as file:
        json.dump({"package": str(package_file), "values": values}, file, ensure_ascii=False)


def dump(out: Path, names: list[str], jobs: int = 2) -> list[str]:
    """Write the named sections, each in a process of its own; the names of those that failed."""
    out.mkdir(parents=True, exist_ok=True)

    def run(name: str) -> bool:
        if name in WITH_DATA and data_folder() is None:
            print(f"{name:18} left out: set UNMASK_DATA to the folder of the official data files", flush=True)
            return True
        command = [sys.executable, str(Path(__file__).resolve()), "--in-process", str(out), name]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment())
        print(f"{name:18} {done.stderr[-3000:] if done.returncode else done.stdout.strip()}", flush=True)
        return not done.returncode

    with ThreadPoolExecutor(jobs) as pool:
        return [name for name, ok in zip(names, pool.map(run, names), strict=True) if not ok]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the names of all sections")
    parser.add_argument("--in-process", action="store_true", help="run one section in this process")
    parser.add_argument("out", type=Path, nargs="?", default=Path("golden"))
    parser.add_argument("sections", nargs="*", help=f"default: all of {', '.join(SECTIONS)}")
    given = parser.parse_args()
    unknown = set(given.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown sections: {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    if given.list:
        print(*SECTIONS, sep="\n")
        return 0
    if given.in_process:
        sys.path.insert(0, str(ROOT))
        dump_section(given.sections[0], given.out)
        print(f"{sum(os.times()[:4]):6.1f} s of processor time")
        return 0
    return bool(dump(given.out, given.sections or list(SECTIONS)))


if __name__ == "__main__":
    sys.exit(main())
