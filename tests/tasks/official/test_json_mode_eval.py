"""JSON Mode Eval: objects against their schemas."""

import json

from unmask.tasks import examples, score


def test_json_mode_permuted_keys(data):
    for e in examples("json-mode-eval", "evaluation", data):
        gold = json.loads(e.target)
        assert score(json.dumps(dict(reversed(gold.items()))), e).utility == 1.0
        assert 0.0 <= score(json.dumps(dict.fromkeys(gold)), e).utility < 1.0
        assert "Required fields:" in e.prompt
