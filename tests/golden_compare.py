"""Compare golden dumps: with the committed values, or of two revisions on one machine.

    python tests/golden_compare.py check [SECTION ...]         # with tests/golden_values; `make golden`
    python tests/golden_compare.py update [SECTION ...]        # writes tests/golden_values and says what moves
    python tests/golden_compare.py against REV [SECTION ...]   # the working tree with a commit, to the bit

Committed values are compact. For each key they hold a hash over everything that must be equal (texts, integers,
verdicts, the shape) and, in their order, the floats that must agree within `TOLERANCE`. Each revision is dumped by its
own copy of tests/golden.py, in a git worktree of its own. The dump of a commit is kept under .golden/; delete that
folder when torch or another dependency changes, which may move last bits.
"""

import argparse
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = ROOT / "tests" / "golden_values"
# Several worktrees may share one cache through a link.
CACHE = (ROOT / ".golden").resolve()
TOLERANCE = 1e-4
NEVER_COMMITTED = ("words/", "machine/")

Values = dict[str, Any]


def close(a: float, b: float) -> bool:
    """Whether two floats agree. Two whole numbers, counts that a table holds as floats, must be equal."""
    if a == b:
        return True
    # Shares are stored at four digits: one unit of the last is within the tolerance, whatever the subtraction rounds.
    return not (a.is_integer() and b.is_integer()) and abs(a - b) <= TOLERANCE * max(1.0, abs(a)) * (1 + 1e-9)


def split_leaves(value: Any, numbers: list[float]) -> Any:
    """The value with a sign in place of each float; the floats are appended to `numbers` in their order."""
    if isinstance(value, dict):
        return {key: split_leaves(value[key], numbers) for key in sorted(value)}
    if isinstance(value, list):
        return [split_leaves(inner, numbers) for inner in value]
    if isinstance(value, float):
        numbers.append(value)
        return "<float>"
    return value


def compact(value: Any) -> tuple[str, list[float]]:
    """Hash of all that must be equal, and the floats."""
    numbers: list[float] = []
    skeleton = json.dumps(split_leaves(value, numbers), ensure_ascii=False)
    return hashlib.sha256(skeleton.encode()).hexdigest()[:16], numbers


def write_committed(path: Path, values: Values) -> None:
    """One line per key: the key, the hash, the floats at six digits."""
    lines = []
    for key, value in sorted(values.items()):
        if not key.startswith(NEVER_COMMITTED):
            digest, numbers = compact(value)
            texts = [str(int(x)) if x.is_integer() else f"{x:.6g}" for x in numbers]
            lines.append("\t".join([key, digest, " ".join(texts)]).rstrip("\t"))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_committed(path: Path) -> dict[str, tuple[str, list[float]]]:
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        key, digest, *numbers = line.split("\t")
        found[key] = digest, [float(x) for x in numbers[0].split()] if numbers else []
    return found


def read_dump(path: Path, worktree: Path) -> Values:
    """The values of one section. A dump by code from outside `worktree` says nothing about it and is refused."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        document = json.load(file)
    if not Path(document["package"]).is_relative_to(worktree / "src"):
        raise SystemExit(f"{path} was made by {document['package']}, which is outside {worktree / 'src'}")
    values: Values = document["values"]
    return values


def differences_from_committed(committed: dict[str, tuple[str, list[float]]], values: Values) -> list[str]:
    """One line for each key that is not as committed."""
    values = {key: value for key, value in values.items() if not key.startswith(NEVER_COMMITTED)}
    lines = [f"{key}: gone" for key in sorted(committed.keys() - values.keys())]
    lines += [f"{key}: new" for key in sorted(values.keys() - committed.keys())]
    for key in sorted(committed.keys() & values.keys()):
        (old_hash, old), (new_hash, new) = committed[key], compact(values[key])
        apart = [(a, b) for a, b in zip(old, new, strict=False) if not close(a, b)]
        if old_hash != new_hash or len(old) != len(new):
            lines.append(f"{key}: texts, integers or shape differ")
        elif apart:
            lines.append(
                f"{key}: {len(apart)} of {len(old)} floats differ, first {apart[0][0]:.6g} -> {apart[0][1]:.6g}"
            )
    return lines


def first_difference(a: Any, b: Any) -> str | None:
    """Where two values differ first and how, or None where they are equal to the bit."""
    if type(a) is not type(b):
        return f": {a!r:.80} -> {b!r:.80}"
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return f": keys only before {sorted(a.keys() - b.keys())}, only after {sorted(b.keys() - a.keys())}"[:200]
        pairs = [(f".{key}", a[key], b[key]) for key in a]
    elif isinstance(a, list):
        if len(a) != len(b):
            return f": {len(a)} -> {len(b)} entries"
        pairs = [(f"[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b, strict=True))]
    else:
        return None if a == b else f": {a!r:.80} -> {b!r:.80}"
    for where, x, y in pairs:
        found = first_difference(x, y)
        if found:
            return where + found
    return None


def differences_of_dumps(old: Values, new: Values) -> list[str]:
    """One line for each key whose values are not equal to the bit. Wording is not compared."""
    lines = []
    for key in sorted(old.keys() | new.keys()):
        if key.startswith("words/"):
            continue
        if key not in old or key not in new:
            lines.append(f"{key}: {'gone' if key in old else 'new'}")
            continue
        found = first_difference(old[key], new[key])
        if found:
            lines.append(f"{key} at {found}")
    return lines


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def run_golden(worktree: Path, *arguments: str, capture: bool = False) -> str:
    """Run a worktree's own copy of golden.py."""
    # What the caller's shell says about paths is about another worktree.
    settings = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    data = ROOT.parent / "shared" / "data"
    if "UNMASK_DATA" in settings or data.is_dir():
        settings["UNMASK_DATA"] = str(Path(settings.get("UNMASK_DATA", data)).resolve())
    command = [sys.executable, str(worktree / "tests" / "golden.py"), *arguments]
    output = subprocess.PIPE if capture else None
    done = subprocess.run(command, cwd=worktree, env=settings, check=False, stdout=output, text=True)
    if done.returncode:
        raise SystemExit(f"the dump of {worktree} failed: {' '.join(command)}")
    return done.stdout or ""


def run_dump(worktree: Path, out: Path, sections: list[str]) -> list[str]:
    """Dump a worktree; the sections that were written. Those that need data which is not there are not."""
    run_golden(worktree, str(out), *sections)
    return [name for name in sections if (out / f"{name}.json.gz").exists()]


def dump_revision(revision: str, sections: list[str]) -> tuple[Path, Path]:
    """The folder with the values of a commit, made if need be, and the worktree that it was made in.

    Of `sections` those are dumped that the commit has; an empty list stands for all of them.
    """
    commit = git("rev-parse", "--verify", f"{revision}^{{commit}}")
    CACHE.mkdir(exist_ok=True)
    # Two comparisons at once would remove each other's worktree.
    with FileLock(CACHE / f"{commit}.lock"):
        return _dump_commit(commit, sections)


def _dump_commit(commit: str, sections: list[str]) -> tuple[Path, Path]:
    worktree = CACHE / "worktrees" / commit
    if git("ls-tree", commit, "tests/golden.py"):
        folder = CACHE / commit
    else:
        # The commit is dumped by this copy of golden.py: with another copy its values are others.
        folder = CACHE / f"{commit}-{hashlib.sha256((ROOT / 'tests' / 'golden.py').read_bytes()).hexdigest()[:8]}"
    if sections and all((folder / f"{name}.json.gz").exists() for name in sections):
        return folder, worktree
    if worktree.exists():  # of a run that was killed
        git("worktree", "remove", "--force", str(worktree))
    git("worktree", "add", "--force", "--detach", str(worktree), commit)
    try:
        for name in ("tests/golden.py", "src/unmask/__main__.py"):  # which version 0.7.0 lacks
            if not (worktree / name).exists():
                shutil.copy(ROOT / name, worktree / name)
        there = run_golden(worktree, "--list", capture=True).split()
        missing = [name for name in there if name in (sections or there) and not (folder / f"{name}.json.gz").exists()]
        # Whole or not at all: a dump that was interrupted must not be taken for one of fewer values.
        with tempfile.TemporaryDirectory(dir=CACHE) as made:
            written = run_dump(worktree, Path(made), missing) if missing else []
            folder.mkdir(parents=True, exist_ok=True)
            for name in written:
                shutil.move(Path(made) / f"{name}.json.gz", folder / f"{name}.json.gz")
    finally:
        git("worktree", "remove", "--force", str(worktree))
    return folder, worktree


def check(sections: list[str], committed: Path = COMMITTED, worktree: Path = ROOT) -> list[str]:
    """Dump the working tree; one line for each difference from the committed values."""
    with tempfile.TemporaryDirectory(prefix="golden-") as out:
        made = run_dump(worktree, Path(out), sections)
        return [
            line
            for name in made
            for line in differences_from_committed(
                read_committed(committed / f"{name}.txt") if (committed / f"{name}.txt").exists() else {},
                read_dump(Path(out) / f"{name}.json.gz", worktree),
            )
        ]


def update(sections: list[str]) -> list[str]:
    """Write the committed values anew; one line for each that moves."""
    COMMITTED.mkdir(exist_ok=True)
    lines = []
    with tempfile.TemporaryDirectory(prefix="golden-") as out:
        for name in run_dump(ROOT, Path(out), sections):
            path, values = COMMITTED / f"{name}.txt", read_dump(Path(out) / f"{name}.json.gz", ROOT)
            lines += differences_from_committed(read_committed(path) if path.exists() else {}, values)
            write_committed(path, values)
    return lines


def against(revision: str, sections: list[str]) -> list[str]:
    """One line for each value of the working tree that is not, to the bit, that of a revision; [] for all sections."""
    folder, worktree = dump_revision(revision, sections)
    lines = []
    with tempfile.TemporaryDirectory(prefix="golden-") as out:
        made = run_dump(ROOT, Path(out), sections or run_golden(ROOT, "--list", capture=True).split())
        before = {path.name.removesuffix(".json.gz") for path in folder.glob("*.json.gz")}
        lines += [f"{name}: gone" for name in sorted(before - set(made)) if not sections]
        for name in made:
            old = read_dump(folder / f"{name}.json.gz", worktree) if name in before else {}
            lines += differences_of_dumps(old, read_dump(Path(out) / f"{name}.json.gz", ROOT))
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "update", "against"])
    parser.add_argument("names", nargs="*", help="sections; after `against` the revision first")
    given = parser.parse_args(arguments)
    if given.what == "against":
        if not given.names:
            parser.error("against which revision? For example: make golden-against REV=HEAD")
        lines = against(given.names[0], given.names[1:])
    else:
        names = given.names or run_golden(ROOT, "--list", capture=True).split()
        lines = check(names) if given.what == "check" else update(names)
    verb = "moved" if given.what == "update" else "differ"
    print(*lines, f"{len(lines)} values {verb}" if lines else "all values are equal", sep="\n")
    return bool(lines) and given.what != "update"


if __name__ == "__main__":
    sys.exit(main())
