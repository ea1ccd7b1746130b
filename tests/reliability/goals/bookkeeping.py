"""What a store says of itself, damaged or edited; names of models; other code under the same version."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import unmask as unmask_package
from tests.reliability.case import Case, Goal
from tests.reliability.flips import edited
from tests.reliability.goals.bits import differs, report
from tests.reliability.made import STUDY, WORKS, Made
from tests.reliability.process import fresh, unmask

NAMES = ("模型", "é", "-", "mini llada", "mini-llada", "a/b", "a b", "a.b", "..", ".", "CON", "x" * 300, "é", "\u202e")
NAMES += ("_", "a:b", "manifest", "shards", "'", '"', "$HOME", "%s", "\t", "🎲", "A", "a")

PAIRS = (("模型", "é"), ("mini llada", "mini-llada"), ("-", "exact"))
"""Come first."""


def try_case(case: Case, folder: Path, made: Made) -> str | None:
    return KINDS[case.number % len(KINDS)](case, folder, made)


def _damaged(case: Case, folder: Path, made: Made) -> str | None:
    """A JSON file of the store cut off, gone or edited: nothing unexpected, and never other numbers."""
    rng, work = case.rng, made.copy("study", folder)
    before = report(folder, "before")
    path = rng.choice(sorted((folder / "study").rglob("*.json")))
    kind = rng.choice(("cut off", "gone", "empty", "edited", "edited", "no text", "twice", "a list"))
    text = path.read_text(encoding="utf-8")
    if kind == "gone":
        path.unlink()
    elif kind == "cut off":
        path.write_text(text[: rng.randrange(len(text) - 2)], encoding="utf-8")
    elif kind == "edited":
        path.write_text(json.dumps(edited(json.loads(text), rng), indent=2), encoding="utf-8")
    else:
        other = {
            "empty": b"",
            "no text": b"\xff\xfe",
            "a list": b"[]",
            "twice": text.encode().replace(b"{", b'{"a":', 1),
        }
        path.write_bytes(other[kind])
    found = []
    for command in (["status"], ["status", "--verify"]):
        ended = unmask("study", *command, "study", folder=folder)
        found += [f"{' '.join(command)}: {ended.trouble}"] if ended.trouble else []
    found += [differs(report(folder, "after"), before)]
    ended = work.run(folder)
    if ended.trouble or (ended.code and not ended.last.startswith("error:")):
        found += [f"run: {ended.trouble or ended.err}"]
    elif ended.code == 0 and work.outcome(folder, ended) != made.outcome("study"):
        found += ["run ends with other tables"]
    said = "; ".join(filter(None, found))
    return f"{path.parent.name}/{path.name} {kind}: {said}" if said else None


def _names(case: Case, folder: Path, made: Made) -> str | None:
    """Two models under odd names: both are measured."""
    rng = case.rng
    turn = case.number // len(KINDS)
    names = PAIRS[turn] if turn < len(PAIRS) else rng.sample(NAMES, 2)
    head, model, tail = STUDY.partition("[[models]]")[0], "", STUDY[STUDY.index("[splits]") :]
    for at, name in enumerate(names):
        model += f'[[models]]\nname = {json.dumps(name, ensure_ascii=False)}\nmodel = "exact"\nreference = "llada"\n'
        model += f"options = {{ n = 8, seed = {at} }}\n"
    (folder / "study.toml").write_text(head + model + tail, encoding="utf-8")
    (folder / "mine.jsonl").write_text(WORKS["study"].files["mine.jsonl"], encoding="utf-8")
    ended = unmask(*WORKS["study"].arguments, folder=folder)
    if ended.trouble:
        return f"models {names}: {ended.trouble}"
    if ended.code == 2:
        return None if _refused_as_name(ended.err) else f"models {names}: {ended.last}"
    told = json.loads(unmask("study", "status", "study", "--json", folder=folder).out or "{}")
    finished = {name: (model["finished"], model["shards"]) for name, model in told.get("models", {}).items()}
    if finished != dict.fromkeys(names, (4, 4)) or ended.code or told["branches"] != 64:
        return f"models {names}: finished {finished}, {told.get('branches')} branches of 64, exit {ended.code}"
    again = report(folder, "report")[0]
    return f"models {names}, report: {again.trouble or again.last}" if again.trouble or again.code else None


def _refused_as_name(text: str) -> bool:
    """A name may be refused, if the message says that it is the name."""
    return "name" in text and "allowed" in text


def _code(case: Case, folder: Path, made: Made) -> str | None:
    """Another core under the same version: refused, or accepted by name; another report is no other core."""
    rng, work = case.rng, made.copy("study", folder)
    package = _copied(folder / "src")
    computes = case.number // len(KINDS) % 3 != 2
    rooms = ("core", "axes", "methods", "models", "lab/branching") if computes else ("report", "cli")
    file = rng.choice([p for room in rooms for p in sorted((package / room).glob("*.py")) if p.name != "__main__.py"])
    with file.open("a", encoding="utf-8") as source:
        source.write("\n_CHANGED = object()\n")
    shutil.rmtree(rng.choice(sorted((folder / "study" / "shards").glob("[!.]*"))))
    env = {"PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    what = str(file.relative_to(package))
    ended = fresh(*work.arguments, folder=folder, **env)
    if ended.trouble:
        return f"other {what}: {ended.trouble}"
    if computes and ended.code != 2:
        return f"other {what}: goes on with exit code {ended.code}, tables of two codes in one store"
    if computes:
        if "--allow-code-change" not in ended.err:
            return f"other {what}: refused without saying what to do: {ended.last}"
        ended = fresh(*work.arguments, "--allow-code-change", folder=folder, **env)
    if ended.code or work.outcome(folder, ended) != made.outcome("study"):
        return f"other {what}: {ended.trouble or ended.last or 'other tables'}"
    return None


def _copied(place: Path) -> Path:
    """The package somewhere else; its models, which are large, by a link."""
    home = Path(unmask_package.__file__).parent
    shutil.copytree(home, place / "unmask", ignore=shutil.ignore_patterns("__pycache__", "mini", "mini-dream"))
    for model in (home / "models" / "shipped").iterdir():
        os.symlink(model, place / "unmask" / "models" / "shipped" / model.name)
    return place / "unmask"


SCORER = "import helping\n\ndef score(text, example):\n    return helping.worth(text)\n"
HELPING = "def worth(text):\n    return len(text) % {} / 10\n"


def _scorer(case: Case, folder: Path, made: Made) -> str | None:
    """A user's scorer, or a module that it imports, changed between two runs: refused."""
    WORKS["study"].prepare(folder)
    text = STUDY.replace('"contains"', '"scoring:score"')
    (folder / "study.toml").write_text(text, encoding="utf-8")
    (folder / "scoring.py").write_text(SCORER, encoding="utf-8")
    (folder / "helping.py").write_text(HELPING.format(7), encoding="utf-8")
    command = WORKS["study"].arguments
    ended = unmask(*command, folder=folder)
    if ended.code or ended.trouble:
        return f"own scorer: {ended.trouble or ended.last}"
    shutil.rmtree(case.rng.choice(sorted((folder / "study" / "shards").glob("[!.]*"))))
    changed = case.rng.choice(("scoring.py", "helping.py"))
    source = SCORER.replace("worth(text)", "worth(text) / 2") if changed == "scoring.py" else HELPING.format(5)
    (folder / changed).write_text(source, encoding="utf-8")
    ended = unmask(*command, folder=folder)
    if ended.trouble or ended.code != 2:
        return f"{changed} of a scorer changed: {ended.trouble or f'goes on, exit code {ended.code}'}"
    return None


KINDS: tuple[Callable[[Case, Path, Made], str | None], ...] = (_damaged, _names, _damaged, _scorer, _damaged, _code)
GOAL = Goal("bookkeeping", "damaged manifests, odd names, other code", try_case, sample=12, needs=("study",))
