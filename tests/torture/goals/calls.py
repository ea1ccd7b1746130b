"""Calls of the Python interface with arguments at random: they return, or raise an error of ours."""

import random
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from tests.torture.case import Case, Failure, Goal
from tests.torture.hostile import NUMBERS, TEXTS
from tests.torture.limits import bounded
from tests.torture.made import LINES, Made

LONGEST = 5000
"""Characters of a repr: a few lines."""
PYTHONS_OWN = re.compile(
    r"unexpected keyword|missing \d+ required|positional argument|multiple values"
    r"|str, bytes or os.PathLike|a str( object)? or an os.PathLike|bytes-like object is required"
)
"""What Python itself says of a call that does not fit the signature, and of a path that is none."""


def try_case(case: Case, folder: Path, made: Made) -> Failure | None:
    import torch

    from unmask import UnmaskError

    torch.set_num_threads(1)
    (folder / "mine.jsonl").write_text(LINES, encoding="utf-8")
    (folder / "gate.json").write_bytes((made.folder / "gate" / "gate.json").read_bytes())
    rng = case.rng
    name, call, given = rng.choice(CALLS)(rng)
    bounded()
    what = f"{name}({', '.join(f'{key}={_short(value)}' for key, value in given.items())})"
    try:
        result = call(**given)
        shown = repr(result)
    except UnmaskError as error:
        return None if str(error).strip() else Failure(f"{what}: an error without words")
    except TypeError as error:
        return None if PYTHONS_OWN.search(str(error)) else Failure(f"{what}: TypeError: {error}")
    except Exception as error:
        return Failure(f"{what}: {type(error).__name__}: {str(error)[:300]}")
    return Failure(f"{what}: a repr of {len(shown):,} characters") if len(shown) > LONGEST else None


def _short(value: object) -> str:
    return repr(value)[:60]


def _value(rng: random.Random) -> Any:
    """Anything at all."""
    import numpy as np
    import torch

    pool: list[Any] = [
        None,
        True,
        False,
        -1,
        0,
        1,
        2,
        3,
        7,
        10**12,
        -(2**63),
        0.0,
        0.5,
        1.5,
        float("nan"),
        float("inf"),
    ]
    pool += [
        "",
        "a",
        "ab",
        "zz",
        "[MASK]",
        "a[MASK]b",
        "llada",
        "wino",
        "exact",
        "mini.jsonl",
        "gate.json",
        b"ab",
        [],
        (),
    ]
    pool += [["a", "b"], [["a"]], ["a", 1], {}, {"role": "user", "content": "ab"}, [{"role": "user", "content": "ab"}]]
    pool += [[{"role": 1}], [{}], object(), object, Path("mine.jsonl"), len, lambda: None, set(), range(3), 1j]
    pool += [np.int64(2), np.float32("nan"), np.array([1, 2]), torch.tensor(1), torch.zeros(2, 2), *NUMBERS]
    return rng.choice(TEXTS) if rng.random() < 0.15 else rng.choice(pool)


def _some(rng: random.Random, names: list[str], likely: dict[str, Any], most: int = 3) -> dict[str, Any]:
    """Arguments: what is likely, and a few at random."""
    chosen = rng.sample(names, min(len(names), rng.randint(0, most)))
    given = {**likely, **{name: _value(rng) for name in chosen}}
    if rng.random() < 0.05:
        given[rng.choice(["no_such", "promt", "x"])] = _value(rng)
    return given


Chosen = tuple[str, Callable[..., Any], dict[str, Any]]


def _options() -> list[str]:
    from unmask.api.options import DecodeOptions

    return [*DecodeOptions.model_fields, "block_length", "remasking", "threshold"]


def _load(rng: random.Random) -> Chosen:
    from unmask import load

    given = _some(rng, ["n", "vocab", "dependence", "structure", "seed", "eos", "device", "name_or_path"], {})
    name = given.pop("name_or_path", "exact")
    return f"load {_short(name)}", lambda **options: load(name, **options), given


def _generate(rng: random.Random) -> Chosen:
    from unmask import load

    return "generate", load("exact").generate, _some(rng, ["prompt", *_options()], {"prompt": "ab"})


def _infill(rng: random.Random) -> Chosen:
    from unmask import load

    return "infill", load("exact").infill, _some(rng, ["text", *_options()], {"text": "a[MASK][MASK]b"})


def _history(rng: random.Random) -> Chosen:
    """What a run remembers: its rows, its steps, and going on from one."""
    from unmask import load

    model = load("exact")
    made = model.generate(["ab", "b"], max_new_tokens=4, temperature=rng.choice((0.0, 1.0)))
    choices: list[Chosen] = [
        ("row", made.trajectory.row, {"row": _value(rng)}),
        ("resume", made.trajectory.resume, {"row": rng.choice([0, _value(rng)]), "step": _value(rng)}),
        ("save", made.trajectory.save, {"path": _value(rng)}),
        ("Trajectory.load", type(made.trajectory).load, {"path": _value(rng)}),
        ("Trajectory.from_bytes", type(made.trajectory).from_bytes, {"content": rng.choice([b"", b"PK", _value(rng)])}),
        ("repr", lambda: made, {}),
    ]
    branch = getattr(model, "branch", None)
    if branch is not None:
        likely = {"generation": made, "row": 0, "step": 1}
        choices.append(("branch", branch, _some(rng, ["generation", "row", "step", "policy", "action"], likely, 2)))
    return rng.choice(choices)


def _policy(rng: random.Random) -> Chosen:
    from unmask.methods import METHODS, make_policy

    name = rng.choice([*METHODS, *TEXTS[:9]])
    names = [f.name for f in fields(METHODS[name].policy)] if hasattr(METHODS.get(name), "policy") else ["block_length"]
    return f"make {name[:20]!r}", lambda **settings: make_policy(name, **settings), _some(rng, names, {})


def _calibrate(rng: random.Random) -> Chosen:
    from unmask import calibrate, load

    likely = {"model": load("exact"), "task": "mine.jsonl", "axis": "region", "score": "contains", "horizon": 4}
    likely |= {"prompts": 2, "states": 1, "rollouts": 1}
    return "calibrate", calibrate, _some(rng, [*likely, "steps_share", "seed", "rows", "work"], likely, 2)


def _gate(rng: random.Random) -> Chosen:
    from unmask.adapt import Gate

    return "Gate.load", Gate.load, _some(rng, ["path", "fingerprint", "force"], {"path": "gate.json"})


CALLS = (_load, _generate, _generate, _generate, _infill, _history, _history, _policy, _calibrate, _gate)
GOAL = Goal("calls", "Python calls at random", try_case, sample=100, needs=("gate",), seconds=90)
