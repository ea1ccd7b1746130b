"""Make rows of tokens from training texts, and keep them in a cache file.

A row is the prompt, the answer, an end of turn, and end-of-text tokens up to the length that the answer may have.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from tokenizers import Tokenizer

from unmask import __version__
from unmask.base.environment import usable_cores
from unmask.base.errors import ConfigError, SchemaError, require
from unmask.train import sources
from unmask.train.config import TrainConfig, hash_json
from unmask.train.run_folder import read_hashed, write_hashed
from unmask.train.sources import Folders, Text
from unmask.train.tokenizer import CHATS, ChatFormat, ControlIds, learn_tokenizer

LAYOUT = "2"
"""Version of the format of rows. It is part of the data key, so that a change renames every cache file."""
MOST_LEFT_OUT = 0.05
"""Share of a source's examples that may be too long before the run is refused."""

Log = Callable[[str], None]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """E tokenised examples of different lengths, one after the other in one array."""

    # Two bytes are enough, because the configuration allows at most 32,768 tokens.
    tokens: NDArray[np.int16]
    length_E: Ints
    prompt_E: Ints
    """Tokens before the answer. The answer is the rest of the row."""
    source_E: Ints
    """Number of each row's source, in the order of the configuration."""

    def __len__(self) -> int:
        return len(self.length_E)

    @property
    def answer_E(self) -> Ints:
        return self.length_E - self.prompt_E

    def pad(self, chosen_E: Ints, width: int, filler: int) -> NDArray[np.int16]:
        """Copy the chosen rows into a table, padded on the right."""
        table = np.full((len(chosen_E), width), filler, dtype=np.int16)
        starts_E = np.concatenate([[0], np.cumsum(self.length_E)[:-1]])
        column_N = np.arange(width)
        inside = column_N < self.length_E[chosen_E, None]
        table[inside] = self.tokens[(starts_E[chosen_E, None] + column_N)[inside]]
        return table

    @classmethod
    def concat(cls, parts: Sequence["Rows"]) -> "Rows":
        """Concatenate several sets of rows."""
        names = ("tokens", "length_E", "prompt_E", "source_E")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True)
class TrainingData:
    """Tokenizer, training rows and held-out rows of a run."""

    key: str
    """Hash of everything that the rows depend on."""
    tokenizer: Tokenizer
    ids: ControlIds
    training: Rows
    held_out: Rows
    left_out: Mapping[str, int]
    """Number of examples of each source that were too long for every row."""


def data_key(config: TrainConfig, folders: Folders) -> str:
    """Hash everything that determines the rows: settings, versions of generators, and the user's texts."""
    settings = {
        name: value
        for name, value in config.flatten().items()
        if name.startswith(("tokenizer.", "data.", "sources.")) and not name.endswith(".weight")
    }
    versions = {name: sources.source_version(name) for name in config.sources}
    texts = None
    if sources.FILES in config.sources:
        texts = hash_json([text.answer for text in sources.read_passages(folders.texts)])
    names = list(config.sources)
    # The order of sources counts, because rows carry their source by its number.
    return hash_json([LAYOUT, __version__, config.seed, config.model.family, settings, names, versions, texts])


def load_data(config: TrainConfig, folders: Folders, cache: Path, log: Log, workers: int | None = None) -> TrainingData:
    """Read the tokenizer and rows of a run from the cache, or make them and write them there."""
    if folders.texts is not None and sources.FILES not in config.sources:
        raise ConfigError(
            f"a folder of texts was given, but the configuration has no [sources.{sources.FILES}]; allowed: both or "
            "neither; add the table, or leave the folder out"
        )
    key = data_key(config, folders)
    path = cache / f"rows-{key[:16]}.safetensors"
    # The key is part of the name: changed settings make a new file beside the old one.
    if path.exists():
        log(f"rows from {path}")
        return read_cache(path, key, config)
    data = build_data(config, folders, key, log, usable_cores() if workers is None else workers)
    write_cache(data, path)
    return data


def build_data(config: TrainConfig, folders: Folders, key: str, log: Log, workers: int) -> TrainingData:
    """Generate all texts of a run, learn the tokenizer from some of them, and tokenise them all."""
    chat, names = CHATS[config.model.family], list(config.sources)
    counts, validation = {name: source.examples for name, source in config.sources.items()}, config.data.validation
    for name, count in counts.items():
        # Held-out rows come from the end of a finite source, so both together must fit into it.
        available = sources.count_available_texts(name, folders)
        if available is not None:
            most = available - validation
            allowed = f"up to {most}: it has {available}, and {validation} are held out"
            require(count <= most, f"examples of {name}", count, allowed, "lower it")

    few = {name: min(count, config.tokenizer.examples) for name, count in counts.items()}
    chunks = sources.stream_texts(few, config.seed, False, folders, workers)
    texts = (part for _, chunk in chunks for text in chunk for part in (text.prompt, text.answer) if part is not None)
    tokenizer = learn_tokenizer(texts, config.tokenizer.size, chat)
    log(f"tokenizer of {config.tokenizer.size} tokens learnt from {sum(few.values()):,} examples")

    ids, left_out = ControlIds.of(tokenizer, chat), dict.fromkeys(counts, 0)
    longest = config.data.lengths[-1]

    def make_rows(counts: dict[str, int], held_out: bool) -> Rows:
        parts = []
        for source, chunk in sources.stream_texts(counts, config.seed, held_out, folders, workers):
            parts.append(encode_rows(chunk, names.index(source), tokenizer, chat, ids, longest))
            left_out[source] += len(chunk) - len(parts[-1])
        return Rows.concat(parts)

    training, held_out = make_rows(counts, False), make_rows(dict.fromkeys(counts, validation), True)
    for source, count in left_out.items():
        share = count / (counts[source] + validation)
        allowed = f"at most {MOST_LEFT_OUT:.0%} of its examples too long"
        todo = "raise the last of data.lengths"
        require(share <= MOST_LEFT_OUT, f"examples of {source} left out", f"{share:.1%}", allowed, todo)
    mean = training.length_E.mean()
    log(f"{len(training):,} rows of {mean:.0f} tokens on average, {sum(left_out.values())} left out")
    return TrainingData(key, tokenizer, ids, training, held_out, left_out)


def encode_rows(
    chunk: list[Text], source: int, tokenizer: Tokenizer, chat: ChatFormat, ids: ControlIds, longest: int
) -> Rows:
    """Tokenise texts into rows: prompt, answer, end of turn, then end-of-text tokens up to the answer length.

    Examples that are too long are left out. Prompt and answer are tokenised apart, as a decoder meets them. An answer
    of the full length has no end of turn. A plain text is followed by one end-of-text token, without any filler.
    """

    def encode_texts(texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    # Apart, although one call would be quicker: merges across the border would give the answer another first token than
    # a decoder starts from.
    head = encode_texts([chat.bos if text.prompt is None else chat.render_prompt(text.prompt) for text in chunk])
    tail = encode_texts([text.answer for text in chunk])
    prompt_E, written_E = np.array([*map(len, head)]), np.array([*map(len, tail)])
    plain_E = np.array([text.room is None for text in chunk])
    answer_E = np.array([text.room or 0 for text in chunk])
    answer_E[plain_E] = written_E[plain_E] + 1
    keep_E = (written_E <= answer_E) & (prompt_E + answer_E <= longest)
    kept = np.flatnonzero(keep_E).tolist()
    prompt_E, written_E, answer_E, plain_E = (x[keep_E] for x in (prompt_E, written_E, answer_E, plain_E))
    length_E = prompt_E + answer_E
    start_E = np.cumsum(length_E) - length_E
    # Filled by index arithmetic on whole chunks: a loop over the rows of mini.toml takes minutes.
    tokens = np.full(int(length_E.sum()), ids.eos, dtype=np.int16)
    # Only what differs from the filler is written: prompts, answers, and one end of turn where there is room.
    tokens[_join_ranges(start_E, prompt_E)] = np.fromiter(chain.from_iterable(head[i] for i in kept), np.int16)
    tokens[_join_ranges(start_E + prompt_E, written_E)] = np.fromiter(
        chain.from_iterable(tail[i] for i in kept), np.int16
    )
    tokens[(start_E + prompt_E + written_E)[(written_E < answer_E) & ~plain_E]] = ids.turn
    return Rows(tokens, length_E, prompt_E, np.full(len(kept), source))


def _join_ranges(start_E: Ints, count_E: Ints) -> Ints:
    """Concatenate the ranges from start to start + count - 1, one for each pair of start and count."""
    before_E = np.cumsum(count_E) - count_E
    return np.repeat(start_E - before_E, count_E) + np.arange(int(count_E.sum()))


def write_cache(data: TrainingData, path: Path) -> None:
    """Write tokenizer and rows into one cache file, complete or not at all."""
    tensors: dict[str, NDArray[np.generic]] = {}
    for name, rows in (("training", data.training), ("held_out", data.held_out)):
        tensors[f"{name}.tokens"] = rows.tokens
        for part in ("length", "prompt", "source"):
            # Four bytes are enough on disk; in memory they are eight, as index arithmetic wants.
            tensors[f"{name}.{part}"] = getattr(rows, f"{part}_E").astype(np.int32)
    notes = {"key": data.key, "tokenizer": data.tokenizer.to_str(), "left_out": dict(data.left_out)}
    # Text goes into the same file as bytes, so that rows never stand beside another run's tokenizer.
    tensors["notes"] = np.frombuffer(json.dumps(notes).encode("ascii"), np.uint8)
    write_hashed(path, safetensors.numpy.save(tensors))


def read_cache(path: Path, key: str, config: TrainConfig) -> TrainingData:
    """Read tokenizer and rows from a cache file. Refuse a damaged file and one of other data."""
    redo = "delete it, and it is made again"
    tensors = safetensors.numpy.load(read_hashed(path, redo))
    notes = json.loads(tensors["notes"].tobytes())
    # The name holds only a part of the key.
    if notes["key"] != key:
        raise SchemaError(f"{path} belongs to other data; allowed: rows with the key {key}; {redo}")
    training, held_out = (
        Rows(
            tensors[f"{name}.tokens"],
            *(tensors[f"{name}.{part}"].astype(np.int64) for part in ("length", "prompt", "source")),
        )
        for name in ("training", "held_out")
    )
    tokenizer = Tokenizer.from_str(notes["tokenizer"])
    ids = ControlIds.of(tokenizer, CHATS[config.model.family])
    return TrainingData(key, tokenizer, ids, training, held_out, notes["left_out"])
