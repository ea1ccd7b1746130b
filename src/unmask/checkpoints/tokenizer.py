"""Tokenizers of published checkpoints, every token under the id that its file gives it."""

from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from unmask.base.errors import CheckpointError
from unmask.checkpoints.config import read_json, read_text

_QWEN2 = ("DreamTokenizer", "Qwen2Tokenizer", "Qwen2TokenizerFast")
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint folder: its tokenizer.json, or Qwen2's kind from vocab.json and merges.txt.

    Every token has the id its file gives it. The `tokenizers` package alone would renumber added tokens silently
    where their ids clash or leave holes.
    """
    whole = folder / "tokenizer.json"
    if whole.exists():
        return _from_one_file(whole)
    settings = folder / "tokenizer_config.json"
    if not settings.exists() and not (folder / "vocab.json").exists():
        raise CheckpointError(
            f"{folder} has no tokenizer; allowed: a tokenizer.json, or vocab.json, merges.txt and "
            "tokenizer_config.json; download the missing files"
        )
    name = read_json(settings).get("tokenizer_class")
    if name not in _QWEN2:
        raise CheckpointError(
            f"'tokenizer_class' in {settings} is {name!r}, and there is no tokenizer.json; allowed: "
            f"{', '.join(_QWEN2)}, or any class with a tokenizer.json; save the tokenizer as a fast one (transformers: "
            "save_pretrained)"
        )
    return _from_byte_pairs(folder)


def tokenizer_file(folder: Path) -> Path:
    """The file that a tokenizer's tokens come from, for messages."""
    whole = folder / "tokenizer.json"
    return whole if whole.exists() else folder / "tokenizer_config.json"


def _from_one_file(path: Path) -> Tokenizer:
    document = read_json(path)
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the package raises nothing narrower
        raise CheckpointError(
            f"{path} is no tokenizer ({error}); allowed: what the tokenizers package writes; download it again, or "
            "install a newer tokenizers"
        ) from error
    # How long a text may be is decided elsewhere, and loudly.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    _check_ids(tokenizer, [(entry["content"], entry["id"]) for entry in document.get("added_tokens") or []], path)
    settings = path.with_name("tokenizer_config.json")
    if settings.exists() and "added_tokens_decoder" in read_json(settings):
        _add_tokens(tokenizer, path.parent)
    ids = tokenizer.get_vocab(with_added_tokens=True)
    if len(set(ids.values())) < len(ids):
        number = next(number for text, number in ids.items() if tokenizer.id_to_token(number) != text)
        texts = sorted(text for text, other in ids.items() if other == number)
        raise CheckpointError(
            f"{path} gives the id {number} to {' and '.join(map(repr, texts))}; allowed: an id for each token; "
            "download the file again"
        )
    return tokenizer


def _from_byte_pairs(folder: Path) -> Tokenizer:
    """Qwen2's byte-level BPE, which Dream shares."""
    vocabulary, merges = _read_vocabulary(folder / "vocab.json"), _read_merges(folder / "merges.txt")
    try:
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    except Exception as error:  # the package raises nothing narrower
        raise CheckpointError(
            f"{folder / 'merges.txt'} does not fit vocab.json ({error}); allowed: merges whose parts and results "
            "are in the vocabulary; download both files again"
        ) from error
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    _add_tokens(tokenizer, folder)
    return tokenizer


def _read_vocabulary(path: Path) -> dict[str, int]:
    vocabulary = read_json(path)
    token_of: dict[int, str] = {}
    for token, number in vocabulary.items():
        if not isinstance(number, int) or isinstance(number, bool):
            raise CheckpointError(
                f"the id of {token!r} in {path} is {number!r}; allowed: whole numbers; download the file again"
            )
        if number in token_of:
            raise CheckpointError(
                f"{path} gives the id {number} to {token_of[number]!r} and {token!r}; allowed: an id for each token; "
                "download the file again"
            )
        token_of[number] = token
    for number in range(len(vocabulary)):
        if number not in token_of:
            raise CheckpointError(
                f"{path} has {len(vocabulary)} tokens but none with id {number}; allowed: the ids from 0 up without a "
                "hole; download the file again"
            )
    # A byte without a token would vanish from every text without a word.
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet()):
        if letter not in vocabulary:
            raise CheckpointError(
                f"{path} has no token {letter!r}, which stands for a byte; allowed: vocabularies with all 256 bytes; "
                "download the file again"
            )
    return vocabulary


def _read_merges(path: Path) -> list[tuple[str, str]]:
    lines = read_text(path, "a text file with a merge on each line").split("\n")
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or (number == 1 and line.startswith("#version:")):
            continue
        parts = line.split()
        if len(parts) != 2:
            raise CheckpointError(
                f"line {number} of {path} is {line!r}; allowed: two parts to merge; download the file again"
            )
        merges.append((parts[0], parts[1]))
    return merges


def _add_tokens(tokenizer: Tokenizer, folder: Path) -> None:
    """Add the tokens that tokenizer_config.json (or, in older folders, added_tokens.json) lists, under their ids."""
    path, legacy = folder / "tokenizer_config.json", folder / "added_tokens.json"
    entries = read_json(path).get("added_tokens_decoder")
    if isinstance(entries, dict):
        pairs = list(entries.items())
    elif entries is not None:
        raise CheckpointError(
            f"'added_tokens_decoder' in {path} is a {type(entries).__name__}; allowed: ids with their tokens; download "
            "the file again"
        )
    else:
        path, special = legacy, _special_texts(folder)
        ids = read_json(path) if path.exists() else {}
        pairs = [(number, {"content": text, "special": text in special}) for text, number in ids.items()]
    listed = sorted((_added_token(number, entry, path) for number, entry in pairs), key=itemgetter(0))
    tokenizer.add_tokens([token for _, token in listed if tokenizer.token_to_id(token.content) is None])
    _check_ids(tokenizer, [(token.content, number) for number, token in listed], path)


def _added_token(number: Any, entry: Any, path: Path) -> tuple[int, AddedToken]:
    try:
        flags = {flag: entry[flag] for flag in _FLAGS if flag in entry}
        return int(number), AddedToken(entry["content"], **{"normalized": not flags.get("special"), **flags})
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} lists the added token {number!r}: {entry!r}; allowed: a whole number with the token's text and "
            "flags; download the file again"
        ) from error


def _check_ids(tokenizer: Tokenizer, added: Iterable[tuple[str, int]], path: Path) -> None:
    for text, number in added:
        got = tokenizer.token_to_id(text)
        if got != number:
            raise CheckpointError(
                f"{path} gives the added token {text!r} the id {number}, but its place in the sequence is {got}; "
                "allowed: ids that follow the vocabulary without a hole or a clash; download the tokenizer files again"
            )


def special_tokens(folder: Path) -> dict[str, str]:
    """The named tokens that a template may write: bos_token, eos_token and so on."""
    texts: dict[str, str] = {}
    # The second file is the one transformers goes by.
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        path = folder / name
        for key, value in (read_json(path) if path.exists() else {}).items():
            text = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(text, str):
                texts[key] = text
    return texts


def _special_texts(folder: Path) -> list[str]:
    more = read_json(folder / "tokenizer_config.json").get("additional_special_tokens")
    return [*special_tokens(folder).values(), *(more if isinstance(more, list) else [])]
