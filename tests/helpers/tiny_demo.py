"""A study for `unmask demo` that takes a second: the exact model, and a task of one's own."""

import json
from itertools import product

STUDY = """
name = "tiny-demo"
seed = 0
tasks = ["mine"]
axes = ["region", "cardinality"]
states = 2
rollouts = 1
temperature = 0.0
diagnostics = ["region", "cardinality"]
end_to_end = true

[own.mine]
prompts = "mine.jsonl"
score = "contains"
horizon = 4

[[models]]
name = "exact"
model = "exact"
reference = "llada"
options = { n = 8 }

[splits]
validation = 4
evaluation = 4

[steps]
share = 0.5

[candidates]
region = ["full", "block:8"]

[engine]
rows = 8
bucket = 32
prompts = 4
"""


def write(folder):
    """study.toml and its prompts; returns the study file."""
    prompts = ["".join(letters) for letters in product("abcd", repeat=3)][:16]
    lines = [json.dumps({"prompt": p, "target": "dc", "id": p}) for p in prompts]
    (folder / "mine.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    return folder / "study.toml"
