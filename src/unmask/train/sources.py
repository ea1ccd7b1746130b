"""Where training texts come from. Example i of a source is a function of (seed, i); nothing here loads torch."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from unmask.base.errors import ConfigError, ContractError, require
from unmask.tasks import CONTROLS, SPLITS, TASKS, TRAINING, Task, examples, training
from unmask.tasks.base import digest
from unmask.tasks.draw import Draw
from unmask.tasks.official import gsm8k
from unmask.tasks.scoring.extract import squeeze
from unmask.train import texts

WRITTEN: dict[str, Callable[[Draw], texts.Pair]] = {
    "english": texts.english,
    "arithmetic": texts.arithmetic,
    "code": texts.code,
}
"""Requests that this package writes itself."""
ROOMS = (16, 24, 32, 48, 64, 96, 128)
"""Room for their answers, in tokens, drawn for each: whoever asks a model something picks any length."""
FILES = "texts"
"""Plain text from a folder that the user names."""
CONSTRUCTED = tuple(name for name, task in {**TASKS, **CONTROLS}.items() if task.generator)
GSM8K = gsm8k.TASK.name
SOURCES = (*CONSTRUCTED, GSM8K, *WRITTEN, FILES)

STRIDE = 10**9
"""Seeds draw from different stretches of the endless streams; the second half of each is held out."""
CHUNK = 2000
PASSAGE = 400
"""Characters of a passage of plain text, at most."""
_SUFFIXES = (".txt", ".md", ".py")
_CALCULATOR = re.compile(r"<<.*?>>")


class Text(NamedTuple):
    """One example before it is tokenised. Without a prompt it is a passage of plain text."""

    prompt: str | None
    answer: str
    room: int | None
    """Tokens that the answer has, filler included; None for a text that is as long as it is."""


@dataclass(frozen=True)
class Folders:
    """What the user's machine adds: official data, and texts to read."""

    data: str | None = None
    texts: str | None = None


def versions(source: str) -> str:
    """What identifies a source's texts beyond its name: the version of a generator."""
    return "1" if source in WRITTEN or source == FILES else {**TASKS, **CONTROLS}[source].prompts_version


def available(source: str, folders: Folders) -> int | None:
    """How many examples a source has, for training and validation together; None if they never end."""
    if source == GSM8K:
        return len(_gsm8k(folders.data))
    return len(passages(folders.texts)) if source == FILES else None


def generate(source: str, seed: int, held_out: bool, start: int, count: int, folders: Folders) -> list[Text]:
    """Examples `start` to `start + count` of a source; training and held-out ones have nothing in common."""
    if source in (GSM8K, FILES):
        everything = _gsm8k(folders.data) if source == GSM8K else passages(folders.texts)
        # Counted from the end, so that held-out rows are the same however many are trained on.
        chosen = everything[::-1] if held_out else everything
        require(
            start + count <= len(chosen), f"examples of {source}", start + count, f"up to {len(chosen)}", "lower it"
        )
        return list(chosen[start : start + count])
    first = seed * STRIDE + (STRIDE // 2 if held_out else 0) + start
    require(start + count <= STRIDE // 2, f"examples of {source}", start + count, f"up to {STRIDE // 2}", "lower it")
    if source in WRITTEN:
        return [_written(source, i) for i in range(first, first + count)]
    return list(_drawn({**TASKS, **CONTROLS}[source], first, count))


def _written(source: str, i: int) -> Text:
    draw = Draw(digest("unmask", "train", source, str(i)))
    prompt, answer = WRITTEN[source](draw)
    # A token has two characters or more nearly always.
    return Text(prompt, answer, draw.choice([room for room in ROOMS if room > len(answer) // 2 + 1] or ROOMS[-1:]))


def _drawn(task: Task, first: int, count: int) -> Iterator[Text]:
    taken = split_prompts(task.name)
    for example in islice(training(task.name, first), count):
        if example.split != TRAINING or squeeze(example.prompt) in taken:
            raise ContractError(
                f"{example.id} is an example of the {task.name} suite's splits; allowed: its training stream; training "
                "on it would make every score worthless"
            )
        yield Text(example.prompt, f"<answer>{example.target}</answer>", task.horizon)


@lru_cache(maxsize=16)
def split_prompts(name: str) -> frozenset[str]:
    """Every prompt that a model may never see in training, with whitespace normalised."""
    return frozenset(squeeze(example.prompt) for split in SPLITS for example in examples(name, split))


@lru_cache(maxsize=2)
def _gsm8k(folder: str | None) -> tuple[Text, ...]:
    """The official training file, solutions included, without its calculator's notes."""
    return tuple(
        Text(
            example.prompt,
            f"{_CALCULATOR.sub('', str(example.constraints['solution']))}\n<answer>{example.target}</answer>",
            gsm8k.TASK.horizon,
        )
        for example in training(GSM8K, 0, folder)
    )


@lru_cache(maxsize=2)
def passages(folder: str | None) -> tuple[Text, ...]:
    """Passages of the text files in a folder, in the order of their names, paragraph by paragraph."""
    if folder is None:
        raise ConfigError(
            f"the configuration has [sources.{FILES}], but no folder of texts was given; allowed: a folder of "
            f"{', '.join(_SUFFIXES)} files; name it with --texts, or take the table out"
        )
    texts: list[Text] = []
    for path in sorted(path for path in Path(folder).rglob("*") if path.suffix in _SUFFIXES and path.is_file()):
        try:
            content = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{str(path)!r} cannot be read ({error}); allowed: UTF-8 text; mend or move it"
            ) from error
        _check_foreign(path, content)
        for paragraph in content.split("\n\n"):
            texts += (Text(None, piece, None) for piece in _pieces(paragraph.strip("\n")))
    if not texts:
        raise ConfigError(
            f"{folder!r} has no text; allowed: a folder of {', '.join(_SUFFIXES)} files; name another with --texts"
        )
    return tuple(texts)


def _pieces(paragraph: str) -> Iterator[str]:
    """A paragraph cut at spaces and line ends into passages of bounded length."""
    while len(paragraph) > PASSAGE:
        cut = max(paragraph.rfind(" ", 1, PASSAGE), paragraph.rfind("\n", 1, PASSAGE))
        cut = cut if cut > 0 else PASSAGE
        yield paragraph[:cut]
        paragraph = paragraph[cut:].lstrip("\n")
    if paragraph.strip():
        yield paragraph


def _check_foreign(path: Path, content: str) -> None:
    """No prompt of the suite may come in through a text file; all of them ask for an answer between tags."""
    if "<answer>" not in content:
        return
    plain = squeeze(content)
    for name in CONSTRUCTED:
        for prompt in split_prompts(name):
            if prompt in plain:
                raise ContractError(
                    f"{str(path)!r} holds a prompt of {name}: {prompt[:60]!r}; allowed: texts without the suite's "
                    "prompts; remove it"
                )


# In parallel


class _Piece(NamedTuple):
    source: str
    seed: int
    held_out: bool
    start: int
    size: int
    folders: Folders


def _work(piece: _Piece) -> list[Text]:
    return generate(*piece)


def stream(
    wanted: dict[str, int], seed: int, held_out: bool, folders: Folders, workers: int
) -> Iterator[tuple[str, list[Text]]]:
    """All examples of several sources in order, chunk by chunk, made by several processes if there are many."""
    pieces = [
        _Piece(source, seed, held_out, start, min(CHUNK, count - start), folders)
        for source, count in wanted.items()
        for start in range(0, count, CHUNK)
    ]
    if workers < 2 or len(pieces) < 8:
        yield from ((piece.source, _work(piece)) for piece in pieces)
        return
    # Spawned, not forked: a fork of a process with running threads (tokenizers, torch) can hang.
    ignore = (signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent; it stops the workers.
    pool = ProcessPoolExecutor(min(workers, len(pieces)), get_context("spawn"), signal.signal, ignore)
    try:
        yield from zip((piece.source for piece in pieces), pool.map(_work, pieces), strict=True)
    except BrokenProcessPool as error:
        raise ConfigError(
            f"the {workers} processes that make examples have died; allowed: enough memory for them, and in a script "
            "of your own a call under `if __name__ == '__main__':`; pass workers=1 to do without them"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
