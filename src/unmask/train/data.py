"""From texts to rows of tokens: prompt, answer, end of turn, end of text up to the horizon. Kept in one file."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from unmask import __version__
from unmask.base.errors import ConfigError, SchemaError, require
from unmask.base.files import atomic_write
from unmask.train import sources
from unmask.train.config import Config, hash_of
from unmask.train.sources import Folders, Text
from unmask.train.tokenizer import CHATS, Chat, Ids, learn

LAYOUT = "2"
"""Of the rows; a change gives every cache file another name."""
MOST_LEFT_OUT = 0.05
"""Share of a source's examples that may be too long before the run is refused."""

Say = Callable[[str], None]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """E rows of tokens, one after the other."""

    tokens: NDArray[np.int16]
    length_E: Ints
    prompt_E: Ints
    """Tokens before the answer; the answer is the rest of the row."""
    source_E: Ints
    """Which source a row comes from, as a number in the order of the configuration."""

    def __len__(self) -> int:
        return len(self.length_E)

    @property
    def answer_E(self) -> Ints:
        return self.length_E - self.prompt_E

    def padded(self, chosen_E: Ints, width: int, filler: int) -> NDArray[np.int16]:
        """Some rows side by side, filled up on the right."""
        table = np.full((len(chosen_E), width), filler, dtype=np.int16)
        starts_E = np.concatenate([[0], np.cumsum(self.length_E)[:-1]])
        column_N = np.arange(width)
        inside = column_N < self.length_E[chosen_E, None]
        table[inside] = self.tokens[(starts_E[chosen_E, None] + column_N)[inside]]
        return table


@dataclass(frozen=True)
class Pool:
    """All that a run trains and validates on."""

    key: str
    """A hash of everything the rows follow from."""
    tokenizer: Tokenizer
    ids: Ids
    training: Rows
    held_out: Rows
    left_out: Mapping[str, int]
    """Examples of each source that fit in no row."""


def data_key(config: Config, folders: Folders) -> str:
    """What the rows follow from: settings, versions of generators, and the texts of the user's folder."""
    flat = {
        name: value for name, value in config.flat().items() if name.startswith(("tokenizer.", "data.", "sources."))
    }
    flat = {name: value for name, value in flat.items() if not name.endswith(".weight")}
    generators = {name: sources.versions(name) for name in config.sources}
    read = (
        hash_of([text.answer for text in sources.passages(folders.texts)]) if sources.FILES in config.sources else None
    )
    return hash_of(
        [LAYOUT, __version__, config.seed, config.model.family, flat, list(config.sources), generators, read]
    )


def load(config: Config, folders: Folders, cache: Path, say: Say, workers: int | None = None) -> Pool:
    """The run's rows, from the cache if they are there."""
    if folders.texts is not None and sources.FILES not in config.sources:
        raise ConfigError(
            f"a folder of texts was given, but the configuration has no [sources.{sources.FILES}]; allowed: both or "
            "neither; add the table, or leave the folder out"
        )
    key = data_key(config, folders)
    path = cache / f"rows-{key[:16]}.safetensors"
    if path.exists():
        say(f"rows from {path}")
        return read(path, key, config)
    pool = build(config, folders, key, say, sources.cores() if workers is None else workers)
    write(pool, path)
    return pool


def build(config: Config, folders: Folders, key: str, say: Say, workers: int) -> Pool:
    """Learn the tokenizer, then make and tokenise every example."""
    chat = CHATS[config.model.family]
    wanted = {name: source.examples for name, source in config.sources.items()}
    for name, count in wanted.items():
        most = sources.available(name, folders)
        if most is not None:
            left = most - config.data.validation
            allowed = f"up to {left}: it has {most}, and {config.data.validation} are held out"
            require(count <= left, f"examples of {name}", count, allowed, "lower it")
    few = {name: min(count, config.tokenizer.examples) for name, count in wanted.items()}
    lessons = (
        text for _, chunk in sources.stream(few, config.seed, False, folders, workers) for text in _lessons(chunk)
    )
    tokenizer = learn(lessons, config.tokenizer.size, chat)
    say(f"tokenizer of {config.tokenizer.size} tokens learnt from {sum(few.values()):,} examples")
    ids, left_out = Ids.of(tokenizer, chat), dict.fromkeys(wanted, 0)
    longest = config.data.lengths[-1]

    def rows(counts: dict[str, int], held_out: bool) -> Rows:
        parts = []
        for source, chunk in sources.stream(counts, config.seed, held_out, folders, workers):
            encoded = encode(chunk, tokenizer, chat, ids, longest)
            left_out[source] += len(chunk) - len(encoded.length_E)
            parts.append((list(config.sources).index(source), encoded))
        return _joined(parts)

    training = rows(wanted, False)
    held_out = rows(dict.fromkeys(wanted, config.data.validation), True)
    for source, count in left_out.items():
        share = count / (wanted[source] + config.data.validation)
        ok = share <= MOST_LEFT_OUT
        allowed = f"at most {MOST_LEFT_OUT:.0%} of its examples too long"
        require(ok, f"examples of {source} left out", f"{share:.1%}", allowed, "raise the last of data.lengths")
    say(
        f"{len(training):,} rows of {training.length_E.mean():.0f} tokens on average, {sum(left_out.values())} left out"
    )
    return Pool(key, tokenizer, ids, training, held_out, left_out)


def _lessons(chunk: list[Text]) -> list[str]:
    return [part for text in chunk for part in (text.prompt, text.answer) if part is not None]


@dataclass(frozen=True)
class Encoded:
    """Rows of one chunk, concatenated."""

    tokens: NDArray[np.int16]
    length_E: Ints
    prompt_E: Ints


def encode(chunk: list[Text], tokenizer: Tokenizer, chat: Chat, ids: Ids, longest: int) -> Encoded:
    """Rows of prompt, answer, end of turn, and end of text as far as there is room; what does not fit is left out.

    Prompt and answer are tokenised apart, as a decoder meets them. An answer that fills its room has no end of
    turn. A plain text is as long as it is and ends in end of text.
    """
    prompts = [chat.bos if text.prompt is None else chat.render(text.prompt) for text in chunk]
    head = [e.ids for e in tokenizer.encode_batch_fast(prompts, add_special_tokens=False)]
    tail = [e.ids for e in tokenizer.encode_batch_fast([text.answer for text in chunk], add_special_tokens=False)]
    prompt_E, said_E = _counts(head), _counts(tail)
    answer_E = np.array([-1 if text.room is None else text.room for text in chunk])
    plain_E = answer_E < 0
    answer_E[plain_E] = said_E[plain_E] + 1
    keep_E = (said_E <= answer_E) & (prompt_E + answer_E <= longest)
    kept = np.flatnonzero(keep_E).tolist()
    prompt_E, said_E, answer_E, plain_E = (x[keep_E] for x in (prompt_E, said_E, answer_E, plain_E))
    length_E = prompt_E + answer_E
    end_E = np.cumsum(length_E)
    start_E = end_E - length_E
    tokens = np.full(int(length_E.sum()), ids.eos, dtype=np.int16)
    tokens[_spans(start_E, prompt_E)] = _flat([head[i] for i in kept])
    tokens[_spans(start_E + prompt_E, said_E)] = _flat([tail[i] for i in kept])
    tokens[(start_E + prompt_E + said_E)[(said_E < answer_E) & ~plain_E]] = ids.turn
    return Encoded(tokens, length_E, prompt_E)


def _counts(pieces: list[list[int]]) -> Ints:
    return np.fromiter(map(len, pieces), np.int64, len(pieces))


def _flat(pieces: list[list[int]]) -> NDArray[np.int16]:
    return np.fromiter(chain.from_iterable(pieces), np.int16)


def _spans(start_E: Ints, count_E: Ints) -> Ints:
    """start, start + 1, ..., start + count - 1 for every pair, one after the other."""
    before_E = np.cumsum(count_E) - count_E
    return np.repeat(start_E - before_E, count_E) + np.arange(int(count_E.sum()))


def _joined(parts: list[tuple[int, Encoded]]) -> Rows:
    return Rows(
        np.concatenate([part.tokens for _, part in parts]),
        np.concatenate([part.length_E for _, part in parts]),
        np.concatenate([part.prompt_E for _, part in parts]),
        np.repeat(np.array([s for s, _ in parts], dtype=np.int64), [len(part.length_E) for _, part in parts]),
    )


# The cache


def write(pool: Pool, path: Path) -> None:
    """One file, complete or absent."""
    from safetensors.numpy import save

    path.parent.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, NDArray[np.generic]] = {}
    for name, rows in (("training", pool.training), ("held_out", pool.held_out)):
        tensors |= {f"{name}.tokens": rows.tokens, f"{name}.length": rows.length_E.astype(np.int32)}
        tensors |= {f"{name}.prompt": rows.prompt_E.astype(np.int32), f"{name}.source": rows.source_E.astype(np.int32)}
    notes = {"key": pool.key, "tokenizer": pool.tokenizer.to_str(), "left_out": json.dumps(dict(pool.left_out))}
    with atomic_write(path) as partial:
        partial.write_bytes(save(tensors, metadata={**notes, "sha256": _digest(tensors, notes)}))


def _digest(tensors: Mapping[str, NDArray[np.generic]], notes: Mapping[str, str]) -> str:
    """Of everything in the file."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(json.dumps([name, str(value.dtype), value.shape]).encode())
        digest.update(np.ascontiguousarray(value).data)
    digest.update(json.dumps(sorted(notes.items())).encode())
    return digest.hexdigest()


def read(path: Path, key: str, config: Config) -> Pool:
    """What `write` wrote."""
    from safetensors import safe_open

    redo = "delete it, and it is made again"
    try:
        with safe_open(str(path), framework="numpy") as file:
            notes = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:
        raise SchemaError(f"{path} cannot be read ({error}); allowed: a complete file of rows; {redo}") from error
    if notes.pop("sha256", None) != _digest(tensors, notes):
        raise SchemaError(f"{path} has changed since it was written; allowed: rows that have their hash; {redo}")
    if notes.get("key") != key:
        raise SchemaError(f"{path} belongs to other data; allowed: rows with the key {key}; {redo}")

    def rows(name: str) -> Rows:
        kept = [tensors[f"{name}.{part}"].astype(np.int64) for part in ("length", "prompt", "source")]
        return Rows(tensors[f"{name}.tokens"], *kept)

    tokenizer = Tokenizer.from_str(notes["tokenizer"])
    ids = Ids.of(tokenizer, CHATS[config.model.family])
    return Pool(key, tokenizer, ids, rows("training"), rows("held_out"), json.loads(notes["left_out"]))
