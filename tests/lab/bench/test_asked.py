"""What is typed, with and without the command line's own libraries."""

import json

import pytest

from tests.helpers.fresh_python import fresh_python
from tests.helpers.tiny_bench import Counted, subject
from unmask.base.errors import ConfigError
from unmask.lab.bench import asked
from unmask.lab.bench.run import run_bench


def test_sizes_are_numbers_each_once():
    assert asked.plan_of("step", "1, 8,8", [], quick=False).batches == (1, 8)
    for text in ("", "1,,2", "a", "-1", "1.5", "9" * 30):
        with pytest.raises(ConfigError, match="--batch is"):
            asked.plan_of("step", text, [], quick=False)


def test_a_run_is_shown_and_saved(tmp_path, capsys, monkeypatch):
    counted = Counted(subject())
    monkeypatch.setattr(asked, "shape_subject", lambda *given: counted.subject)
    code = asked.main(
        ["decode", "--batch", "2", "--quick", "--json", str(tmp_path / "b.json")],
        lambda subject, plan: run_bench(subject, plan, clock=counted.clock),
    )
    assert code == 0
    assert "tokens/s" in capsys.readouterr().out
    assert json.loads((tmp_path / "b.json").read_text())["lines"][0]["batch"] == 2


def test_bad_input_is_one_line_on_stderr(capsys):
    assert asked.main(["nothing"]) == 2
    assert capsys.readouterr().err.startswith("error: unknown part of the bench 'nothing'")


@pytest.mark.slow
def test_it_needs_neither_tokenizers_nor_tables():
    """GPU hosts often have torch and little else."""
    heavy = ["typer", "rich", "pyarrow", "tokenizers", "safetensors", "jsonschema", "transformers", "huggingface_hub"]
    code = f"import sys; sys.modules.update(dict.fromkeys({heavy})); import unmask.lab.bench.asked"
    assert fresh_python(code).returncode == 0
