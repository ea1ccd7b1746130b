"""`unmask likelihood` as a user types it."""

import json

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
