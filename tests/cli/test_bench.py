"""`unmask bench` as a user types it."""

import json


def test_one_part_of_the_shipped_model(command, tmp_path):
    ended = command("bench", "decode", "--batch-size", "1", "--quick", "--device", "cpu", "--json", "found.json")
    assert ended.code == 0, ended.err
    assert "tokens/s" in ended.out
    assert ended.err == "decode, B 1\n"
    document = json.loads((tmp_path / "found.json").read_text())
    assert document["model"]["name"] == "mini"
    assert [line["part"] for line in document["lines"]] == ["decode"]
