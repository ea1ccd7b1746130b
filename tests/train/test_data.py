"""Rows: prompt as a decoder sees it, answer, end of turn, end of text up to the horizon; kept in one file."""

from dataclasses import replace

import numpy as np
import pytest

from unmask.base.errors import ConfigError, SchemaError
from unmask.tasks import find_task
from unmask.train import data as data_module
from unmask.train.config import TrainConfig
from unmask.train.data import Rows, data_key, load_data
from unmask.train.sources import FILES, Folders, generate_texts
from unmask.train.tokenizer import CHATS


def quiet(line: str) -> None:
    pass


def cut(rows: Rows) -> list[list[int]]:
    return [part.tolist() for part in np.split(rows.tokens, np.cumsum(rows.length_E)[:-1])]


def test_rows_are_prompt_answer_and_filler(data, config):
    chat = CHATS[config.model.family]
    rows = cut(data.training)
    texts = generate_texts("carry-rtl", config.seed, False, 0, 60, Folders())
    kept = [row for row, source in zip(rows, data.training.source_E, strict=True) if source == 0]
    prompts = data.training.prompt_E[data.training.source_E == 0]
    assert 57 <= len(kept) <= 60
    written = {f"{chat.render_prompt(text.prompt)}{text.answer}{chat.turn}" for text in texts}
    shown = [data.tokenizer.decode(row, skip_special_tokens=False).replace(chat.eos, "") for row in kept]
    assert set(shown) <= written
    for row, prompt in zip(kept, prompts, strict=True):
        answer = row[prompt:]
        assert len(answer) == find_task("carry-rtl").max_new_tokens
        end = answer.index(data.ids.turn)
        assert set(answer[end + 1 :]) == {data.ids.eos}
        assert data.ids.mask not in row


def test_the_cache_gives_back_what_was_put_in(data, config, cache):
    lines: list[str] = []
    again = load_data(config, Folders(), cache, lines.append, workers=1)
    assert lines == [f"rows from {cache / f'rows-{data.key[:16]}.safetensors'}"]
    for name in ("training", "held_out"):
        for part in ("tokens", "length_E", "prompt_E", "source_E"):
            assert np.array_equal(getattr(getattr(again, name), part), getattr(getattr(data, name), part))
    assert again.tokenizer.to_str() == data.tokenizer.to_str()
    assert (again.ids, again.left_out, again.key) == (data.ids, data.left_out, data.key)


def test_a_damaged_or_foreign_cache_is_refused(data, config, tmp_path):
    path = tmp_path / f"rows-{data.key[:16]}.safetensors"
    path.write_bytes(b"\x00" * 20)
    with pytest.raises(SchemaError, match="delete it"):
        load_data(config, Folders(), tmp_path, quiet, workers=1)
    data_module.write_cache(replace(data, key="other"), path)
    with pytest.raises(SchemaError, match="other data"):
        load_data(config, Folders(), tmp_path, quiet, workers=1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", 4),
        ("model.family", "dream"),
        ("tokenizer.size", 430),
        ("tokenizer.examples", 90),
        ("data.lengths", [96, 240]),
        ("data.validation", 9),
        ("sources.english.examples", 70),
    ],
)
def test_the_key_follows_what_rows_follow(config, tables, key, value):
    assert data_key(TrainConfig(**tables(**{key: value})), Folders()) != data_key(config, Folders())


def test_held_out_examples_of_a_finite_source_are_not_trained_on(tables, tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(f"passage {i}" for i in range(40)), encoding="utf-8")
    folders = Folders(texts=str(tmp_path))
    fits, greedy = (TrainConfig(**tables(**{f"sources.{FILES}": {"weight": 1.0, "examples": n}})) for n in (32, 33))
    data = data_module.build_data(fits, folders, "key", quiet, workers=1)
    held, seen = ({tuple(row) for row in cut(rows)} for rows in (data.held_out, data.training))
    passages = {row for row in held if row[0] == data.ids.bos and "passage" in data.tokenizer.decode(list(row))}
    assert len(passages) == 8
    assert not passages & seen
    with pytest.raises(ConfigError, match="up to 32: it has 40, and 8 are held out"):
        data_module.build_data(greedy, folders, "key", quiet, workers=1)
