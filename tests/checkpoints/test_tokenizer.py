"""Tokenizer files that are missing or broken, and every token under the id of its file."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.checkpoint_texts import KINDS, edit
from unmask.base.errors import CheckpointError
from unmask.checkpoints.tokenizer import read_tokenizer


def test_a_folder_without_a_tokenizer(tmp_path):
    with pytest.raises(
        CheckpointError, match=r"has no tokenizer; allowed: a tokenizer\.json, or vocab\.json"
    ) as refused:
        read_tokenizer(tmp_path)
    assert str(tmp_path) in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "file"), [("dream", "vocab.json"), ("dream", "merges.txt"), ("dream", "tokenizer_config.json")]
)
def test_a_file_that_is_missing(kind, file, copy):
    folder = copy(kind)
    (folder / file).unlink()
    with pytest.raises(CheckpointError) as refused:
        read_tokenizer(folder)
    assert str(folder / file) in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("llada", "tokenizer.json"),
        ("llada", "tokenizer_config.json"),
        ("dream", "tokenizer_config.json"),
        ("dream", "vocab.json"),
        ("dream", "merges.txt"),
    ],
)
@pytest.mark.parametrize(
    "spoil", [lambda raw: raw[: len(raw) // 2 + 2], lambda raw: b"\xff" + raw], ids=["cut", "bytes"]
)
def test_a_file_that_is_cut_short_or_no_text(kind, file, spoil, copy):
    folder = copy(kind)
    raw = (folder / file).read_bytes()
    # A text cut between two lines is a text: end in the middle of a merge.
    end = raw.index(b" ", len(raw) // 2) + 1
    (folder / file).write_bytes(spoil(raw[: 2 * end - 4] if file == "merges.txt" else raw))
    with pytest.raises(CheckpointError, match="download") as refused:
        read_tokenizer(folder)
    assert str(folder / file) in str(refused.value)


@pytest.mark.parametrize("name", ["LlamaTokenizer", None, 3])
def test_a_tokenizer_of_another_class(name, copy):
    folder = copy("dream")
    edit(folder / "tokenizer_config.json", lambda d: d.update(tokenizer_class=name))
    message = (
        rf"'tokenizer_class' in .*tokenizer_config\.json is {name!r}, and there is no tokenizer\.json; .*DreamTokenizer"
    )
    with pytest.raises(CheckpointError, match=message):
        read_tokenizer(folder)


def test_qwen2_by_its_own_name(copy, folders):
    folder = copy("dream")
    edit(folder / "tokenizer_config.json", lambda d: d.update(tokenizer_class="Qwen2Tokenizer"))
    assert read_tokenizer(folder).to_str() == read_tokenizer(folders["dream"]).to_str()


@pytest.mark.parametrize("document", [{}, {"model": {"type": "Unheard"}}, {"version": "9.9"}])
def test_a_file_that_is_no_tokenizer(document, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is no tokenizer"):
        read_tokenizer(tmp_path)


def test_a_vocabulary_with_a_clash(copy):
    folder = copy("dream")
    edit(folder / "vocab.json", lambda d: d.update({"!": d['"']}))
    with pytest.raises(CheckpointError, match=r"vocab\.json gives the id 1 to '!' and '\"'"):
        read_tokenizer(folder)


def test_a_vocabulary_with_a_hole(copy):
    folder = copy("dream")
    edit(folder / "vocab.json", lambda d: d.update({max(d, key=d.get): len(d)}))
    with pytest.raises(CheckpointError, match=r"vocab\.json has \d+ tokens but none with id \d+"):
        read_tokenizer(folder)


def test_a_vocabulary_without_a_byte(copy):
    folder = copy("dream")
    edit(folder / "vocab.json", lambda d: d.update({"~~~": d.pop("Ā")}))
    with pytest.raises(CheckpointError, match=r"vocab\.json has no token 'Ā', which stands for a byte"):
        read_tokenizer(folder)


@pytest.mark.parametrize("number", ["7", 1.5, None, True])
def test_a_vocabulary_with_odd_ids(number, copy):
    folder = copy("dream")
    edit(folder / "vocab.json", lambda d: d.update({"!": number}))
    with pytest.raises(CheckpointError, match=rf"the id of '!' in .*vocab\.json is {number!r}"):
        read_tokenizer(folder)


def test_merges_of_another_vocabulary(copy):
    folder = copy("dream")
    (folder / "merges.txt").write_text("#version: 0.2\nq x\n")
    with pytest.raises(CheckpointError, match=r"merges\.txt does not fit vocab\.json .*`qx` out of vocabulary"):
        read_tokenizer(folder)


def test_windows_line_ends_in_merges(copy, folders):
    folder = copy("dream")
    (folder / "merges.txt").write_bytes((folder / "merges.txt").read_bytes().replace(b"\n", b"\r\n"))
    assert read_tokenizer(folder).to_str() == read_tokenizer(folders["dream"]).to_str()


def last_moved(by: int) -> Callable[[dict[str, Any]], None]:
    """Give the last added token another id."""

    def change(document: dict[str, Any]) -> None:
        added = document["added_tokens_decoder"]
        last = max(added, key=int)
        added[str(int(last) + by)] = added.pop(last)

    return change


@KINDS
@pytest.mark.parametrize("by", [3, -200])
def test_added_tokens_with_a_hole_or_on_the_place_of_another(kind, by, copy):
    folder = copy(kind)
    edit(folder / "tokenizer_config.json", last_moved(by))
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json gives the added token '<\|.*the id \d+, but"):
        read_tokenizer(folder)


def test_added_tokens_in_tokenizer_json_with_a_hole(copy):
    folder = copy("llada")
    edit(folder / "tokenizer.json", lambda d: d["added_tokens"][-1].update(id=509))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json gives the added token '<\|eot_id\|>' the id 509, but"):
        read_tokenizer(folder)


def test_a_clash_in_tokenizer_json(copy):
    folder = copy("llada")
    edit(folder / "tokenizer.json", lambda d: d["model"]["vocab"].update({"!": 5}))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json gives the id 5 to '!' and '&'"):
        read_tokenizer(folder)


@pytest.mark.parametrize("entry", [None, {}, "x", {"content": "<x>", "lstrip": "no"}, {"content": 3}])
def test_an_added_token_that_is_none(entry, copy):
    folder = copy("dream")
    edit(folder / "tokenizer_config.json", lambda d: d["added_tokens_decoder"].update({"504": entry}))
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json lists the added token '504'"):
        read_tokenizer(folder)


def test_added_tokens_that_are_no_table(copy):
    folder = copy("dream")
    edit(folder / "tokenizer_config.json", lambda d: d.update(added_tokens_decoder=[1]))
    with pytest.raises(CheckpointError, match=r"'added_tokens_decoder' in .*tokenizer_config\.json is a list"):
        read_tokenizer(folder)


def test_added_tokens_of_older_folders(copy, folders, golden):
    """Without flags: those with a name or in the list of special tokens are special."""
    folder = copy("dream")
    edit(folder / "tokenizer_config.json", lambda d: d.pop("added_tokens_decoder"))
    old, new = read_tokenizer(folder), read_tokenizer(folders["dream"])
    assert old.get_vocab() == new.get_vocab()
    special = {token.content for token in old.get_added_tokens_decoder().values() if token.special}
    assert special == {"<|endoftext|>", "<|beginoftext|>", "<|mask|>"}
    for case in golden["dream"]["texts"]:
        assert old.encode(case["text"], add_special_tokens=False).ids == case["ids"]


def test_added_tokens_of_older_folders_with_a_clash(copy):
    folder = copy("dream")
    edit(folder / "tokenizer_config.json", lambda d: d.pop("added_tokens_decoder"))
    edit(folder / "added_tokens.json", lambda d: d.update({"<|mask|>": d["<|im_end|>"]}))
    with pytest.raises(CheckpointError, match=r"added_tokens\.json gives the added token"):
        read_tokenizer(folder)


def test_tokens_listed_beside_tokenizer_json(copy, scaled):
    """Where the two files differ, a token of the settings joins those of tokenizer.json, as in transformers."""
    folder = copy("llada")
    ids = scaled.special_ids(folder)
    edit(folder / "tokenizer.json", lambda d: d["added_tokens"].pop())
    assert read_tokenizer(folder).token_to_id("<|eot_id|>") == ids["<|eot_id|>"]


def test_flags_of_added_tokens_are_kept(copy):
    folder = copy("dream")
    flags = {"lstrip": True, "rstrip": True, "normalized": True, "single_word": True, "special": False}
    entry = {"content": "<extra>"} | flags
    edit(folder / "tokenizer_config.json", lambda d: d["added_tokens_decoder"].update({"504": entry}))
    token = read_tokenizer(folder).get_added_tokens_decoder()[504]
    assert {flag: getattr(token, flag) for flag in flags} == flags


def test_a_tokenizer_that_would_cut_or_pad_does_not(copy, codecs):
    folder = copy("llada")
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    pad = {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0}
    edit(folder / "tokenizer.json", lambda d: d.update(truncation=cut, padding=pad | {"pad_token": "!"}))
    text = "Natalia sold clips to 48 of her friends"
    assert read_tokenizer(folder).encode(text).ids == codecs["llada"].tokenizer.encode(text).ids
