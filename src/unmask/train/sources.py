"""Sources of training texts. Example i of a source is a function of (seed, i); nothing here loads torch."""

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
from unmask.tasks import CONTROLS, SPLITS, TASKS, TRAINING, Draw, digest, find_task, normalise_spaces, official
from unmask.train import texts

WRITTEN: dict[str, Callable[[Draw], texts.TextPair]] = {
    "english": texts.make_english_text,
    "arithmetic": texts.make_arithmetic_text,
    "code": texts.make_code_text,
}
"""Sources of plain requests and answers, and the function that writes a text of each."""
ROOMS = (16, 24, 32, 48, 64, 96, 128)
"""Lengths, in tokens, to pad a written answer to. One is drawn for each, because users ask for any length."""
FILES = "texts"
"""Name of the source that reads plain text from the user's folder."""
CONSTRUCTED = tuple(name for name, task in {**TASKS, **CONTROLS}.items() if task.generator)
GSM8K = official.GSM8K.name
SOURCES = (*CONSTRUCTED, GSM8K, *WRITTEN, FILES)

STRIDE = 10**9
"""Number of examples of an endless source that belong to one seed. The second half of them is held out."""
CHUNK = 2000
"""Number of examples that a process makes at once."""
PASSAGE = 400
"""Longest passage of plain text, in characters."""
_SUFFIXES = (".txt", ".md", ".py")


class Text(NamedTuple):
    """One training example before it is tokenised. A passage of plain text has no prompt."""

    prompt: str | None
    answer: str
    room: int | None
    """Number of tokens to pad the answer to; None for plain text, which is not padded."""


@dataclass(frozen=True)
class Folders:
    """Paths of the user's data: a folder with official data sets, and a folder with plain texts."""

    data: str | None = None
    texts: str | None = None


def source_version(source: str) -> str:
    """Return the version of the generator that makes a source's texts."""
    return "1" if source in WRITTEN or source == FILES else {**TASKS, **CONTROLS}[source].prompts_version


def count_available_texts(source: str, folders: Folders) -> int | None:
    """Count the examples of a source, training and held-out ones together; return None for an endless source."""
    if source == GSM8K:
        return len(_read_gsm8k(folders.data))
    return len(read_passages(folders.texts)) if source == FILES else None


def generate_texts(source: str, seed: int, held_out: bool, start: int, count: int, folders: Folders) -> list[Text]:
    """Generate examples `start` to `start + count` of a source. Training and held-out examples never overlap."""
    if source in (GSM8K, FILES):
        everything = _read_gsm8k(folders.data) if source == GSM8K else read_passages(folders.texts)
        # Counted from the end, so that held-out rows stay the same however many rows are trained on.
        ordered = everything[::-1] if held_out else everything
        most = len(ordered)
        require(start + count <= most, f"examples of {source}", start + count, f"up to {most}", "lower it")
        return list(ordered[start : start + count])
    half = STRIDE // 2
    require(start + count <= half, f"examples of {source}", start + count, f"up to {half}", "lower it")
    # Stretches of seeds never meet, and training numbers never reach the held-out half.
    first = seed * STRIDE + (half if held_out else 0) + start
    made = []
    if source in WRITTEN:
        for i in range(first, first + count):
            draw = Draw(digest("unmask", "train", source, str(i)))
            prompt, answer = WRITTEN[source](draw)
            # A token nearly always has two characters or more.
            rooms = [room for room in ROOMS if room > len(answer) // 2 + 1] or ROOMS[-1:]
            made.append(Text(prompt, answer, draw.choice(rooms)))
        return made
    task = {**TASKS, **CONTROLS}[source]
    # Checked again although the stream leaves them out: a leak would make every score worthless.
    forbidden = list_split_prompts(task.name)
    for example in islice(task.training(first), count):
        if example.split != TRAINING or normalise_spaces(example.prompt) in forbidden:
            raise ContractError(
                f"{example.id} is an example of the {task.name} suite's splits; allowed: its training stream; training "
                "on it would make every score worthless"
            )
        made.append(Text(example.prompt, f"<answer>{example.target}</answer>", task.max_new_tokens))
    return made


@lru_cache(maxsize=16)
def list_split_prompts(name: str) -> frozenset[str]:
    """List all prompts of a task's splits, with normalised whitespace. No model may see them in training."""
    return frozenset(
        normalise_spaces(example.prompt) for split in SPLITS for example in find_task(name).examples(split)
    )


@lru_cache(maxsize=2)
def _read_gsm8k(folder: str | None) -> tuple[Text, ...]:
    """Read the training examples of GSM8K with their solutions, without the calculator notes in them."""
    found = []
    room = TASKS[GSM8K].max_new_tokens
    for example in TASKS[GSM8K].training(0, folder):
        solution = re.sub(r"<<.*?>>", "", str(example.constraints["solution"]))
        found.append(Text(example.prompt, f"{solution}\n<answer>{example.target}</answer>", room))
    return tuple(found)


@lru_cache(maxsize=2)
def read_passages(folder: str | None) -> tuple[Text, ...]:
    """Read the text files of a folder in the order of their names, and cut every paragraph into passages."""
    suffixes = ", ".join(_SUFFIXES)
    if folder is None:
        raise ConfigError(
            f"the configuration has [sources.{FILES}], but no folder of texts was given; allowed: a folder of "
            f"{suffixes} files; name it with --texts, or take the table out"
        )
    passages: list[Text] = []
    for path in sorted(path for path in Path(folder).rglob("*") if path.suffix in _SUFFIXES and path.is_file()):
        try:
            content = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{str(path)!r} cannot be read ({error}); allowed: UTF-8 text; mend or move it"
            ) from error
        _check_no_suite_prompt(path, content)
        for paragraph in content.split("\n\n"):
            passages += (Text(None, piece, None) for piece in _cut_paragraph(paragraph.strip("\n")))
    if not passages:
        raise ConfigError(f"{folder!r} has no text; allowed: a folder of {suffixes} files; name another with --texts")
    return tuple(passages)


def _cut_paragraph(paragraph: str) -> Iterator[str]:
    """Cut a paragraph at spaces and line ends into passages of bounded length."""
    while len(paragraph) > PASSAGE:
        cut = max(paragraph.rfind(" ", 1, PASSAGE), paragraph.rfind("\n", 1, PASSAGE))
        cut = cut if cut > 0 else PASSAGE
        yield paragraph[:cut]
        paragraph = paragraph[cut:].lstrip("\n")
    if paragraph.strip():
        yield paragraph


def _check_no_suite_prompt(path: Path, content: str) -> None:
    """Refuse a training text that holds a prompt of the suite."""
    # Every prompt of the suite asks for an answer between these tags; comparing with all of them takes seconds.
    if "<answer>" not in content:
        return
    plain = normalise_spaces(content)
    for name in CONSTRUCTED:
        for prompt in list_split_prompts(name):
            if prompt in plain:
                raise ContractError(
                    f"{str(path)!r} holds a prompt of {name}: {prompt[:60]!r}; allowed: texts without the suite's "
                    "prompts; remove it"
                )


class _TextChunk(NamedTuple):
    """Arguments of `generate_texts` for the texts that a process makes at once."""

    source: str
    seed: int
    held_out: bool
    start: int
    size: int
    folders: Folders


def _generate_chunk(chunk: _TextChunk) -> list[Text]:
    return generate_texts(*chunk)


def stream_texts(
    counts: dict[str, int], seed: int, held_out: bool, folders: Folders, workers: int
) -> Iterator[tuple[str, list[Text]]]:
    """Generate the texts of several sources in order, in chunks, as pairs (source, texts), with several processes."""
    chunks = [
        _TextChunk(source, seed, held_out, start, min(CHUNK, count - start), folders)
        for source, count in counts.items()
        for start in range(0, count, CHUNK)
    ]
    if workers < 2 or len(chunks) < 8:
        yield from ((chunk.source, _generate_chunk(chunk)) for chunk in chunks)
        return
    # Spawned, not forked: a fork of a process with running threads (tokenizers, torch) can hang. Workers ignore
    # Ctrl-C, because the parent stops them; otherwise each of them would print a traceback.
    ignore_ctrl_c = (signal.SIGINT, signal.SIG_IGN)
    pool = ProcessPoolExecutor(min(workers, len(chunks)), get_context("spawn"), signal.signal, ignore_ctrl_c)
    try:
        yield from zip((chunk.source for chunk in chunks), pool.map(_generate_chunk, chunks), strict=True)
    except BrokenProcessPool as error:
        raise ConfigError(
            f"the {workers} processes that make examples have died; allowed: enough memory for them, and in a script "
            "of your own a call under `if __name__ == '__main__':`; pass workers=1 to do without them"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
