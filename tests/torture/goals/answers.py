"""Hostile answers, and hostile messages of scorers, all the way through: no run dies of them and no answer profits."""

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.attacks.completions import ANSWERS, FORGED, RAISED
from tests.helpers.paths import ROOT, SRC
from tests.torture.case import Case, Failure, Goal
from tests.torture.goals.bits import report
from tests.torture.hostile import TEXTS
from tests.torture.made import STUDY, WORKS, Made
from tests.torture.process import unmask

DATA = ROOT.parent / "shared" / "data"
TASKS = ("carry-rtl", "csv-missing-cells", "unique-list-commit", "constrained-json-fill", "html-close-tags")

# Raises for the prompts of MEAN, in its own way; the others have a utility.
SCORER = """
class Mine(BaseException):
    pass

class Unspeakable(ValueError):
    def __str__(self):
        raise Unspeakable

TEXT = {text!r}

def score(text, example):
    if example["id"] in {ids!r}:
        {act}
    return len(text) % 7 / 7
"""
RAISES = (
    "raise ValueError(TEXT)",
    "raise Unspeakable",
    "raise SystemExit(TEXT)",
    "raise type(TEXT[:9] or 'E', (ValueError,), {})(TEXT)",
)
RAISES += ("raise ExceptionGroup('group', [ValueError(TEXT)])", "raise StopIteration(TEXT)", "assert False, TEXT")
BREAKS = ("return 1.7", "return float('nan')", "return None", "return TEXT", "raise Mine(TEXT)", "raise GeneratorExit")


def try_case(case: Case, folder: Path, made: Made) -> Failure | None:
    return KINDS[case.number % len(KINDS)](case, folder, made)


def not_run() -> Sequence[str]:
    return [] if DATA.is_dir() else ["answers: HumanEval (no folder shared/data beside the checkout)"]


def _own_task(folder: Path, text: str, ids: Sequence[str], act: str) -> None:
    WORKS["study"].prepare(folder)
    (folder / "study.toml").write_text(STUDY.replace('"contains"', '"scoring:score"'), encoding="utf-8")
    source = SCORER.format(text=text, ids=tuple(ids), act=act)
    (folder / "scoring.py").write_text(source, encoding="utf-8")


def _scorer(case: Case, folder: Path, made: Made) -> Failure | None:
    """A scorer that raises hostile messages for some prompts: those have no utility, and the study is complete."""
    rng = case.rng
    text, act = (TEXTS[0], RAISES[0]) if case.number == 0 else (rng.choice(TEXTS), rng.choice(RAISES))
    _own_task(folder, text, [f"p{n}" for n in range(0, 16, 3)], act)
    what = f"a scorer that does {act} with {text[:20]!r}"
    ended = unmask(*WORKS["study"].arguments, folder=folder)
    if ended.trouble or ended.code:
        return Failure(f"study run, {what}: {ended.trouble or ended.last}")
    page = report(folder, "page")[0]
    return Failure(f"report, {what}: {page.trouble or page.last}") if page.trouble or page.code else None


def _set_aside(case: Case, folder: Path, made: Made) -> Failure | None:
    """A shard that fails every time is set aside, and the rest goes on."""
    act = BREAKS[case.number // len(KINDS) % len(BREAKS)]
    prompt = _of_one_shard(made)
    _own_task(folder, case.rng.choice(TEXTS[:4]), [prompt], act)
    for _ in range(4):
        ended = unmask(*WORKS["study"].arguments, folder=folder)
        if ended.trouble or ended.code not in (0, 3):
            return Failure(f"a scorer that does {act} for {prompt}: {ended.trouble or ended.last}")
    shown = unmask("study", "status", "study", "--json", folder=folder)
    told = json.loads(shown.out or "{}")
    finished = sum(model["finished"] for model in told.get("models", {}).values())
    # One shard of four at most is lost, and the exit code says so.
    if shown.trouble or finished not in (3, 4) or (ended.code == 3) != (finished == 3):
        return Failure(f"a scorer that does {act} for {prompt}: {finished} of 4 shards, exit code {ended.code}")
    return None


def _of_one_shard(made: Made) -> str:
    """A prompt that the study measures."""
    info = sorted((made.folder / "study" / "study" / "shards").glob("[!.]*/shard.json"))[0]
    text = info.read_text(encoding="utf-8")
    return next(f"p{n}" for n in range(16) if f'"p{n}"' in text)


def _explained(case: Case, folder: Path, made: Made) -> Failure | None:
    """Hostile answers to every prompt of a task, scored and explained."""
    rng, task = case.rng, TASKS[case.number // len(KINDS) % len(TASKS)]
    shown = json.loads(unmask("tasks", "show", task, "-n", 6, "--json", folder=folder).out)
    given = [{"id": one["id"], "text": rng.choice(TEXTS) + rng.choice(("", one["target"]))} for one in shown]
    return _scored(task, given, folder, {one["id"]: one["text"] for one in given})


def _humaneval(case: Case, folder: Path, made: Made) -> Failure | None:
    """Completions that are wrong and hostile: none passes, none is `unavailable`."""
    if not DATA.is_dir():
        return None
    rng = case.rng
    shown = unmask("tasks", "show", "humaneval", "-n", 3, "--json", "--data-dir", DATA, folder=folder)
    first = [RAISED["half a character raised"], RAISED["StopIteration"]] if case.number < len(KINDS) else []
    bodies = [*first, *rng.sample([*FORGED.values(), *ANSWERS.values(), *RAISED.values()], 3)][:3]
    given = [{"id": one["id"], "text": body} for one, body in zip(json.loads(shown.out), bodies, strict=True)]
    return _scored("humaneval", given, folder, {one["id"]: one["text"] for one in given}, perfect=0)


# What a check does with a candidate, and a completion that once passed it or made its verdict go away.
PROBLEMS = {
    "stops a map": ("assert all(map(candidate, [1, 2]))", "    raise StopIteration\n"),
    "a huge number in a message": ("assert candidate(2) == 4, candidate(2)", "    return 10 ** 5000\n"),
    "an object fed back": ("assert candidate(candidate(2)) == 8", "    return object()\n"),
    "a frame by hand": ("assert candidate(2) == 4", FORGED["frame by hand: a raised nothing"]),
    "stops a filter": ("assert not list(filter(candidate, [1, 2]))", "    raise StopIteration\n"),
    "a huge number in an f-string": ("assert False, f'{candidate(2)}'", "    return 10 ** 5000\n"),
    "half a character": ("assert candidate(2) == 4, candidate(2)", "    return '\\ud800'\n"),
}


def _checked(case: Case, folder: Path, made: Made) -> Failure | None:
    """Whatever a completion does once it was called counts as failed."""
    from unmask.tasks.sandbox import check_completion

    forged = {name: ("assert candidate(2) == 4", body) for name, body in FORGED.items()}
    tries = PROBLEMS | forged
    turns, now = divmod(case.number, len(KINDS))
    before = [at for at, kind in enumerate(KINDS) if kind is _checked]
    name = list(tries)[(turns * len(before) + before.index(now)) % len(tries)]
    check, body = tries[name]
    problem = {"prompt": "def f(x):\n", "entry_point": "f", "test": f"def check(candidate):\n    {check}\n"}
    result = check_completion(problem, body)
    if result.status in ("fail", "error", "timeout"):
        return None
    return Failure(f"{name}: {result.status} ({result.detail})")


SAYS = """
from dataclasses import dataclass
from typing import ClassVar

import torch

from unmask.axes import score
from unmask.core import Action, Policy


@dataclass(frozen=True)
class Says(Policy):
    name: ClassVar[str] = "says"

    def act(self, traj, look_ahead):
        masked_BL = traj.state.masked_BL
        place_BL = masked_BL.cumsum(-1) - 1
        said_N = torch.tensor({tokens})
        tokens_BL = said_N[place_BL.clamp(0, len(said_N) - 1)]
        all_B = torch.ones(len(masked_BL))
        return Action(score.rows("confidence", traj.state), masked_BL, all_B, masked_BL, tokens_BL=tokens_BL)
"""


def _compared(case: Case, folder: Path, made: Made) -> Failure | None:
    """A policy of one's own that says what it likes, to HumanEval: `compare` ends, and its answers are wrong."""
    if not DATA.is_dir():
        return None
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(SRC / "unmask" / "models" / "shipped" / "mini" / "tokenizer.json"))
    body = RAISED["half a character raised"] if case.number < len(KINDS) else case.rng.choice([*RAISED.values()])
    end = tokenizer.token_to_id("<|endoftext|>")
    tokens = [*tokenizer.encode(body, add_special_tokens=False).ids, end]
    (folder / "says.py").write_text(SAYS.format(tokens=tokens), encoding="utf-8")
    command = ("compare", "--model", "mini", "--task", "humaneval", "--split", "development", "--prompts", 1)
    more = ("--steps", 1, "--policy", "says.py:Says", "--resamples", 5, "--out", "out", "--data-dir", DATA, "--quiet")
    ended = unmask(*command, *more, folder=folder)
    if ended.trouble or ended.code:
        return Failure(f"compare, {body!r}: {ended.trouble or ended.last}")
    with (folder / "out" / "compare.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if "says" in row["policy"].lower()]
    if len(rows) != 1 or rows[0]["utility"] != "0.0":
        return Failure(f"compare, {body!r}: {rows}")
    return None


def _scored(
    task: str, given: list[dict[str, str]], folder: Path, texts: dict[str, str], perfect: int | None = None
) -> Failure | None:
    """`tasks score`, as text and as JSON."""
    lines = "".join(json.dumps(one) + "\n" for one in given)
    (folder / "answers.jsonl").write_text(lines, encoding="utf-8")
    command = ["tasks", "score", task, "--predictions", "answers.jsonl", "--split", "development"]
    command += ["--data-dir", str(DATA)] if task == "humaneval" else []
    for how in ("--explain", "--json"):
        ended = unmask(*command, how, folder=folder)
        if ended.trouble or ended.code:
            return Failure(f"tasks score {task} {how}: {ended.trouble or ended.last}")
    told = json.loads(ended.out)
    left = {v["id"]: v["reason"] for v in told["verdicts"] if v["utility"] is None and v["id"] in texts}
    if left:
        return Failure(f"{task}: left out of the mean: {left}, answers {[texts[id] for id in left]}")
    won = [v["id"] for v in told["verdicts"] if v["utility"] and v["id"] in texts]
    return Failure(f"{task}: passed: {[texts[id] for id in won]}") if perfect == 0 and won else None


KINDS: tuple[Callable[[Case, Path, Made], Failure | None], ...] = (
    _scorer,
    _checked,
    _set_aside,
    _humaneval,
    _checked,
    _explained,
    _compared,
    _checked,
)
GOAL = Goal("answers", "hostile answers and scorers", try_case, sample=24, needs=("study",), not_run=not_run)
