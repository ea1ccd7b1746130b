"""`unmask likelihood` as a user types it."""

import json

import pytest

from unmask.api.load import load

EXACT = ("-m", "exact", "--model-option", "n=4", "--model-option", "vocab=3")


def test_texts_and_json(command):
    document = command("likelihood", "abca", "bb", *EXACT, "--policy", "fast-dllm:threshold=0.5", "--json").json
    expected = load("exact", n=4, vocab=3).log_likelihood(["abca", "bb"], policy="fast-dllm", threshold=0.5)
    assert document == json.loads(expected.to_json())
    assert document["quantity"].startswith("exact log-likelihood")
    assert document["perplexity"]["low"] <= document["perplexity"]["value"] <= document["perplexity"]["high"]
    assert document["rows"][0]["order"]
    assert document["config"]["policy"]["threshold"] == 0.5


def test_on_the_screen(command):
    shown = command("likelihood", "abca", "bb", *EXACT).out
    assert "exact log-likelihood" in shown
    assert "perplexity" in shown
    assert "6 tokens, 2 texts" in shown
    bound = command("likelihood", "abca", *EXACT, "--estimator", "monte-carlo", "--samples", "8", "--seed", "3").out
    assert "lower bound" in bound


def test_files(command, tmp_path):
    (tmp_path / "texts.txt").write_bytes("\ufeffab\r\nca\n".encode())
    (tmp_path / "rows.jsonl").write_text('{"text": "ab"}\n{"text": "ca", "prompt": "b"}\n', encoding="utf-8")
    plain = command("likelihood", "--file", "texts.txt", *EXACT, "--json").json
    assert [row["text"] for row in plain["rows"]] == ["ab", "ca"]
    rows = command("likelihood", "--file", "rows.jsonl", *EXACT, "--json").json["rows"]
    assert rows[0] == plain["rows"][0]
    assert rows[1]["prompt"] == "b"
    assert rows[1]["log_likelihood"] != plain["rows"][1]["log_likelihood"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no text is given; allowed: texts, or --file FILE"),
        (["ab", "--file", "texts.txt"], "texts and --file are both given"),
        (["--file", "none.txt"], "--file 'none.txt' cannot be read"),
        (["--file", "void.txt"], "--file 'void.txt' is empty"),
        (["ab", "--samples", "3"], "samples is 3; allowed: None without estimator='monte-carlo'"),
        (["ab", "--oracle-block", "2"], "oracle_block is 2; allowed: None without estimator='oracle'"),
        (["--file", "gap.txt"], "line 2 of --file 'gap.txt' is empty"),
        (["--file", "bad.jsonl"], "line 1 of --file 'bad.jsonl' is"),
        (["--file", "latin.txt"], "not UTF-8 text"),
        (["ab", "--policy", "wino"], "wino gives a text no exact likelihood: it re-masks"),
        (["ab", "--set", "threshold=0.5"], "unknown setting of llada 'threshold'"),
        (["ab", "--estimator", "elbo"], "estimator is 'elbo'; allowed: 'exact', 'monte-carlo' or 'oracle'"),
        (["ab", "--samples", "0", "--estimator", "monte-carlo"], "samples is 0; allowed: 1 to 100000"),
        (["xyz"], "'x'"),
        (["abcab"], "needs a canvas of 5 positions; allowed: at most 4"),
    ],
)
def test_bad_input_is_refused(command, tmp_path, arguments, words):
    (tmp_path / "gap.txt").write_text("ab\n\nab\n", encoding="utf-8")
    (tmp_path / "void.txt").touch()
    (tmp_path / "bad.jsonl").write_text('{"text": 3}\n', encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes(b"\xe4b")
    ended = command("likelihood", *arguments, *EXACT)
    assert ended.code == 2
    assert words in ended.err
    assert not ended.out
