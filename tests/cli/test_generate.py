"""`unmask generate` and `unmask infill` as a user types them."""

import sys

import pytest
import typer

from tests.helpers.own_policies import GOOD
from unmask.api.load import load
from unmask.cli.app import app
from unmask.core import Trajectory


def without_config(document):
    return {key: value for key, value in document.items() if key != "config"}


class TestGenerate:
    def test_a_policy_with_its_settings(self, command):
        given = ("generate", "-m", "exact", "--json", "--policy")
        once = command(*given, "fixed:region=block:2,kappa=above:0.9").json
        assert once == command(*given, "fixed:region=block:2", "--set", "kappa=above:0.9").json
        assert once == command(*given, "fixed", "--set", "kappa=above:0.9", "--set", "region=block:2").json

    @pytest.mark.parametrize("call", [("generate", "a"), ("infill", "a__b")])
    def test_a_policy_of_ones_own(self, command, tmp_path, call, monkeypatch):
        monkeypatch.setattr(sys, "path", list(sys.path))
        (tmp_path / "mine.py").write_text(GOOD, encoding="utf-8")
        given = (*call, "-m", "exact", "--steps", "2", "--json", "--policy")
        by_file = command(*given, "mine.py:Counted:count=7").json
        assert by_file["config"]["policy"]["name"] == "counted"
        assert by_file["config"]["policy"]["class"].startswith("Counted, code ")
        assert (by_file["forwards"], command(*given, "llada").json["forwards"]) == (1, 2)
        assert command(*given, "mine:Counted", "--set", "count=7").json == by_file
        assert "counted" in command(*call, "-m", "exact", "--policy", "mine.py:Counted").out

    def test_a_composition(self, command):
        rules = ("--score", "margin", "--region", "block:4", "--cardinality", "eb:0.1", "--commitment", "remdm-conf")
        given = ("generate", "-m", "exact", "--json")
        document = command(*given, *rules).json
        assert document["config"]["policy"]["name"] == "composed"
        assert document["config"]["action"] == {
            "score": {"rule": "margin"},
            "region": {"rule": "block", "size": 4},
            "cardinality": {"rule": "eb", "gamma": 0.1, "within_steps": False},
            "commitment": {"rule": "none", "operator": "remdm-conf", "eta": 1.0},
        }
        text = "composed:score=margin,region=block:4,cardinality=eb:0.1,commitment=remdm-conf"
        assert command(*given, "--policy", text).json == document
        assert command(*given, "--policy", "composed", *rules).json == document
        infilled = command("infill", "a____b", "-m", "exact", "--json", *rules).json
        assert infilled["config"]["action"] == document["config"]["action"]
        shown = " ".join(command("generate", "-m", "exact", *rules).out.split())
        assert "score margin | region block size=4 | cardinality eb gamma=0.1 | commitment none" in shown
        assert "steps set a schedule, but do not end the run: composed goes on" in shown
        assert "this library's own, not a published method" in shown

    def test_a_preset_is_the_familys_and_settings_go_before_it(self, command):
        given = ("generate", "-m", "exact", "--json", "--policy")
        config = command(*given, "klass", "--preset", "gsm8k").json["config"]
        assert config["preset"] == "llada/gsm8k"
        assert (config["policy"]["threshold"], config["policy"]["block_length"]) == (0.6, 64)
        config = command(*given, "klass:preset=dream/gsm8k", "--set", "threshold=0.7").json["config"]
        assert config["preset"] == "dream/gsm8k"
        assert (config["policy"]["threshold"], config["policy"]["variant"]) == (0.7, "dream")
        assert "preset" not in command(*given, "klass").json["config"]
        assert "llada/gsm8k" in command("generate", "-m", "exact", "--policy", "klass", "--preset", "gsm8k").out

    @pytest.mark.parametrize("policy", ["Raises", "Wrong"])
    def test_an_error_of_ones_own_policy_names_it_and_its_place(self, command, tmp_path, policy, monkeypatch):
        monkeypatch.setattr(sys, "path", list(sys.path))
        wrong = (
            '\n\n@dataclass(frozen=True)\nclass Wrong(Counted):\n    name: ClassVar[str] = "wrong"\n\n'
            "    def act(self, traj, look_ahead):\n        return None\n"
        )
        (tmp_path / "mine.py").write_text(GOOD + wrong, encoding="utf-8")
        failed = command("generate", "-m", "exact", "--policy", f"mine.py:{policy}")
        assert failed.code == 2
        assert f"the policy {policy.lower()} ({policy}) failed" in failed.err
        if policy == "Raises":
            lines = (tmp_path / "mine.py").read_text(encoding="utf-8").splitlines()
            line = 1 + next(at for at, text in enumerate(lines) if "raise KeyError" in text)
            assert f"in act, line {line} of {tmp_path / 'mine.py'}: KeyError" in failed.err

    def test_same_seed_same_bytes(self, command, process):
        options = (
            "generate",
            "-m",
            "exact",
            "--temperature",
            "1",
            "--seed",
            "3",
            "--samples",
            "2",
            "--policy",
            "dream",
            "--json",
        )
        here = command(*options)
        assert here.code == 0
        assert command(*options).out == here.out
        out, err = process(*options).communicate()
        assert (out, err) == (here.out, "")

    def test_pretty(self, command):
        shown = command("generate", "-m", "exact", "--prompt", "ab", "--prompt", "c", "--steps", "3")
        assert shown.code == 0
        document = command("generate", "-m", "exact", "--prompt", "ab", "--prompt", "c", "--steps", "3", "--json").json
        for words in ("n=8 vocab=4", "remasking=low_confidence", "temperature=0.0", "steps=3"):
            assert words in shown.out
        assert all(row["text"] in shown.out for row in document["rows"])
        spent = "13 tokens of answer, 6 forwards (0 extra): 2.17 tokens per forward, 0 re-masks, "
        assert spent in " ".join(shown.out.split())
        # The answer comes before the way it was made.
        texts = [shown.out.index(row["text"]) for row in document["rows"]]
        assert max(texts) < shown.out.index("13 tokens") < shown.out.index("n=8 vocab=4")

    def test_filler_is_no_part_of_the_answer(self, command):
        """`mini` ends its answer long before the canvas does."""
        call = ("generate", "Say: two plus two?", "--max-new-tokens", "16")
        document = command(*call, "--json").json
        row = document["rows"][0]
        ends = set(load("mini").denoiser.vocabulary.eos_ids)
        written = next(at for at, token in enumerate(row["tokens"]) if token in ends)
        assert 0 < written < 16
        assert (document["tokens"], document["answer_tokens"], row["answer_tokens"]) == (16, written, written)
        assert document["tokens_per_forward"] == written / document["forwards"]
        said = " ".join(command(*call).out.split())
        tokens = "1 token" if written == 1 else f"{written} tokens"
        assert f"{tokens} of answer (and {16 - written} positions of filler), 8 forwards" in said

    def test_prompt_file_of_json_lines(self, command, tmp_path):
        wanted = command("generate", "-m", "exact", "--prompt", "ab", "--prompt", "c", "--json").out
        (tmp_path / "prompts.jsonl").write_text('{"prompt": "ab", "id": 1}\n"c"\n', encoding="utf-8")
        assert command("generate", "-m", "exact", "--prompt-file", "prompts.jsonl", "--json").out == wanted
        (tmp_path / "prompts.jsonl").write_text('{"text": "ab"}\n', encoding="utf-8")
        ended = command("generate", "-m", "exact", "--prompt-file", "prompts.jsonl")
        assert ended.code == 2
        assert "line 1 of --prompt-file 'prompts.jsonl'" in ended.err

    def test_prompt_file(self, command, tmp_path, monkeypatch):
        (tmp_path / "prompts.txt").write_text("ab\nc\n", encoding="utf-8")
        wanted = command("generate", "-m", "exact", "--prompt", "ab", "--prompt", "c", "--json").out
        assert command("generate", "-m", "exact", "--prompt-file", "prompts.txt", "--json").out == wanted
        with (tmp_path / "prompts.txt").open(encoding="utf-8") as file:
            monkeypatch.setattr(sys, "stdin", file)
            assert command("generate", "-m", "exact", "--prompt-file", "-", "--json").out == wanted

    def test_what_is_saved_can_be_branched(self, command, tmp_path):
        options = ("--temperature", "1.0", "--policy", "dream", "--set", "alg=origin", "--steps", "6", "--seed", "2")
        document = command("generate", "ab", "-m", "exact", *options, "--save", "run.npz", "--json").json
        saved = Trajectory.load(tmp_path / "run.npz")
        assert saved.config == document["config"]
        assert {"fingerprint", "proposal", "policy", "versions"} <= set(saved.config)
        assert load("exact").branch(tmp_path / "run.npz", step=3).text == document["rows"][0]["text"]

    def test_infill(self, command):
        shown = command("infill", "-m", "exact", "a__c", "[MASK]b", "--json").json
        assert [len(row["text"]) for row in shown["rows"]] == [4, 2]
        assert shown["rows"][1]["text"][1] == "b"
        assert [row["answer_tokens"] for row in shown["rows"]] == [2, 1]

    def test_infill_marks_what_it_filled(self, command, monkeypatch):
        call = ("infill", "-m", "exact", "a__c_")
        text = command(*call, "-q").out.strip()
        assert "[" not in text
        monkeypatch.setenv("FORCE_COLOR", "1")
        shown = command(*call).out
        assert f"a\x1b[1;4m{text[1:3]}\x1b[0mc\x1b[1;4m{text[4]}\x1b[0m" in shown
        assert command(*call, "-q").out.strip() == text

    def test_a_save_that_fails_late(self, command, monkeypatch):
        def full(self, path):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Trajectory, "save", full)
        ended = command("generate", "-m", "exact", "--save", "run.npz", "--json")
        assert (ended.code, ended.out) == (2, "")
        assert "No space left on device" in ended.err


class TestWatch:
    def test_the_prompt_is_what_was_typed(self, command):
        """Not what the model's chat template makes of it, nor a wall of ends of text."""
        shown = command("generate", "Add 2\n+ 2", "--max-new-tokens", "8", "--watch", "--quiet", "--samples", "2").err
        assert shown.startswith("prompt    row  0  Add 2↵+ 2\nprompt    row  1  Add 2↵+ 2\nstep   1")
        assert "<|" not in shown
        columns = {line.rindex("  +") for line in shown.splitlines()[2:]}
        assert len(columns) == 1


# What each option of `generate` is set to, and what else must be given for it to have an effect at temperature 0.
ENDS = ("--model-option", "eos=ac")
EFFECTS = {
    "--prompt": ("ab",),
    "--model-option": ("n=6",),
    "--policy": ("wino",),
    "--set": ("remasking=random",),
    "--preset": ("origin", "--policy", "dream"),
    "--score": ("random",),
    "--region": ("last-block:2",),
    "--cardinality": ("all",),
    "--commitment": ("remdm-conf",),
    "--max-new-tokens": ("4",),
    "--steps": ("2",),
    "--temperature": ("2",),
    "--top-p": ("0.4", "--policy", "dream"),
    "--top-k": ("1", "--policy", "dream"),
    "--sampler": ("gumbel", "--temperature", "2"),
    "--cfg-scale": ("3",),
    "--seed": ("1", "--temperature", "2"),
    "--samples": ("2",),
    "--eos-fill": ENDS,
    "--logits-eos-inf": ENDS,
    "--confidence-eos-eot-inf": ENDS,
    "--eos-penalty": ("3", *ENDS),
}
# These do not change what is decoded; other tests here show what they do.
OUTPUT_ONLY = {"--json", "--quiet", "--watch", "--save", "--record-top", "--prompt-file", "--help"}
# These need a checkpoint: tests/api/test_load.py.
OF_CHECKPOINTS = {"--model", "--device", "--dtype", "--cache", "--cache-refresh"}
# These need a calibrated gate: tests/adapt/test_gate.py.
OF_GATES = {"--gate", "--force-gate"}


class TestEveryOption:
    def test_table_is_complete(self):
        command = typer.main.get_command(app).commands["generate"]
        options = [p for p in command.params if p.param_type_name == "option"]
        long = {next(name for name in p.opts if name.startswith("--")) for p in options}
        assert long | {"--help"} == set(EFFECTS) | OUTPUT_ONLY | OF_CHECKPOINTS | OF_GATES

    @pytest.mark.parametrize("option", EFFECTS)
    def test_has_its_effect(self, option, command, tmp_path):
        value = EFFECTS[option]
        bare = value if option in ("--eos-fill", "--logits-eos-inf", "--confidence-eos-eot-inf") else value[1:]
        common = ["generate", "-m", "exact", "--json", "--save", "run.npz"]

        def decoded(*arguments):
            document = without_config(command(*common, *arguments).json)
            steps = Trajectory.load(tmp_path / "run.npz").steps
            return document, [step.revealed_BL.tolist() for step in steps]

        assert decoded(option, *value) != decoded(*bare)
