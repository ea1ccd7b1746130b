"""Answers of a model that is known to the letter, numbers worked out by hand, and the tiny LLaDA checkpoint."""

import csv
import inspect
import io
import json
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from tests.helpers.cases import each_case
from tests.helpers.compared import compare, rows
from tests.helpers.oracle import CARRY, oracle
from unmask.api.load import load
from unmask.base.errors import ConfigError
from unmask.core import Policy
from unmask.lab.compare import run as compare_run
from unmask.lab.compare.summary import MACRO, mark_sure_front, summarise
from unmask.lab.study import prompts
from unmask.lab.study.prompts import FRESH, FRESH_FROM, select_examples
from unmask.methods import LLaDA, fixed_action, with_remasking
from unmask.report import compare as report
from unmask.report.compare import remarks
from unmask.stats import mean_over_tasks
from unmask.tasks import SPLITS, TASKS, Extraction, Verdict, find_task, own_task, score
from unmask.train.sources import STRIDE, Folders, generate_texts

REFERENCE = fixed_action()
IN_ORDER = fixed_action(region="window:1", cardinality="count:1")
"""One position at a time from the left: what the model below needs to be right, given as many steps as tokens."""
BOTH = {"reference": REFERENCE, "in order": IN_ORDER}


@dataclass(frozen=True)
class Broken(Policy):
    """A policy with a mistake in it."""

    name: ClassVar[str] = "broken"
    raised: BaseException = ValueError("half: \ud800")

    def act(self, traj, look_ahead):
        raise self.raised


def estimate(line, measure):
    return tuple(line[f"{measure}{end}"] for end in ("", "_low", "_high", "_n"))


@pytest.fixture(scope="module")
def carry():
    """20 prompts of one task, as many steps as tokens."""
    return compare(oracle(), [CARRY], split="development", prompts=20, policies=BOTH, steps=32)


@pytest.fixture(scope="module")
def two():
    """Two tasks, three policies."""
    names = [CARRY, "td07-sparse-mask"]
    policies = {**BOTH, "blocks": fixed_action(region="block:8")}
    return compare(oracle(*names), names, split="development", prompts=12, policies=policies)


@pytest.fixture(scope="module")
def tiny(scaled, tmp_path_factory):
    return load(str(scaled.llada(tmp_path_factory.mktemp("ck") / "llada")), dtype="fp32", device="cpu")


class TestRows:
    def test_a_policy_that_decodes_in_order_gets_everything_right(self, carry):
        answers = rows(carry, "in order")
        assert [row.utility for row in answers] == [1.0] * 20
        assert [row.answer for row in answers] == [e.target for e in find_task(CARRY).examples("development")[:20]]

    def test_every_row_is_scored_by_the_task(self, carry):
        found = {e.id: e for e in find_task(CARRY).examples("development")}
        assert len(rows(carry)) == 40
        for row in rows(carry):
            verdict = score(row.answer, found[row.prompt])
            assert (row.utility, row.reason) == (verdict.utility, verdict.reason)

    def test_prompts_come_in_the_order_of_the_split(self, carry):
        ids = [e.id for e in find_task(CARRY).examples("development")[:20]]
        assert [row.prompt for row in rows(carry)] == ids * 2
        assert carry.tasks[0] == compare_run.TaskRun(CARRY, horizon=32, steps=32, prompts=20)

    @pytest.mark.parametrize("batch", [1, 3, 7, 64])
    def test_do_not_depend_on_the_batch(self, carry, batch):
        model = oracle()
        again = compare(model, [CARRY], split="development", prompts=20, policies=BOTH, steps=32, batch_size=batch)
        assert rows(again) == rows(carry)
        assert max(model.denoiser.shapes) == min(batch, 20)

    def test_answers_are_judged_once(self, monkeypatch):
        judged = []
        real = prompts.score_all
        monkeypatch.setattr(prompts, "score_all", lambda pairs, jobs: judged.extend(pairs) or real(pairs, jobs))
        policies = {"a": IN_ORDER, "b": fixed_action(region="window:1", cardinality=1.0), "c": REFERENCE}
        found = compare(oracle(), [CARRY], split="development", prompts=5, policies=policies, steps=32, batch_size=2)
        assert [row.answer for row in rows(found, "a")] == [row.answer for row in rows(found, "b")]
        assert len(judged) == 10


class TestCheckpoint:
    def test_answers_are_those_of_generate(self, tiny):
        asked = find_task("csv-missing-cells").examples("development")[:3]
        policies = {"reference": REFERENCE, "revised": with_remasking()}
        for options in ({}, {"temperature": 0.8, "seed": 5}):
            found = compare(tiny, ["csv-missing-cells"], split="development", prompts=3, policies=policies, **options)
            for name, policy in policies.items():
                ours = [(row.answer, row.forwards) for row in rows(found, name)]
                for example, answer in zip(asked, ours, strict=True):
                    out = tiny.generate(example.prompt, max_new_tokens=16, policy=policy, **options)
                    assert answer == (out.text, out.forwards)


class TestMissing:
    def test_an_evaluator_that_cannot_tell_gives_no_utility(self, monkeypatch):
        def shy(pairs, jobs):
            return [
                Verdict(e.id, None if at % 2 else 1.0, "sandbox broken", Extraction(text, "", "", ""), ())
                for at, (text, e) in enumerate(pairs)
            ]

        monkeypatch.setattr(prompts, "score_all", shy)
        found = compare(oracle(), [CARRY], split="development", prompts=6, policies={"reference": REFERENCE})
        assert sum(math.isnan(row.utility) for row in rows(found)) == 3
        line = summarise(found).line(CARRY, "reference")
        assert estimate(line, "utility") == (1.0, 1.0, 1.0, 3)
        assert line["unscored"] == 3
        lines = list(csv.DictReader(io.StringIO(report.answers_csv(found.answers))))
        assert sorted(line["utility"] for line in lines) == ["", "", "", "1.0", "1.0", "1.0"]
        assert {line["reason"] for line in lines} == {"sandbox broken"}

    def test_prompts_that_do_not_fit_are_counted(self):
        lengths = [len(e.prompt.encode()) for e in find_task(CARRY).examples("development")]
        limit = sorted(lengths)[49] + 32
        found = compare(
            oracle(max_length=limit), [CARRY], split="development", policies={"reference": REFERENCE}, steps=2
        )
        fits = sum(length + 32 <= limit for length in lengths)
        assert (found.tasks[0].prompts, found.tasks[0].skipped) == (fits, 100 - fits)
        assert len(rows(found)) == fits
        assert f"{100 - fits} prompts skipped" in "\n".join(remarks(summarise(found)))

    def test_a_task_without_prompts_of_the_split(self, tmp_path):
        lines = [json.dumps({"prompt": f"{at} + 1", "target": str(at + 1)}) for at in range(8)]
        (tmp_path / "mine.jsonl").write_text("\n".join(lines), encoding="utf-8")
        mine = own_task("mine", "mine.jsonl", scorer="exact", max_new_tokens=4, folder=tmp_path)
        found = compare(oracle(), [mine], split="development", policies={"reference": REFERENCE})
        assert found.tasks[0].unavailable == (
            "it has no development prompts; allowed: validation or evaluation; name it with --split"
        )

    def test_data_that_is_not_there(self, tmp_path):
        names = ["gsm8k", CARRY]
        found = compare(oracle(), names, split="development", prompts=2, policies=BOTH, data_dir=tmp_path, steps=32)
        assert "gsm8k/test.jsonl" in found.tasks[0].unavailable
        assert {row.task for row in rows(found)} == {CARRY}
        assert summarise(found).macro_tasks == (CARRY,)

    def test_a_policy_that_cannot_decode_a_task_is_left_out_of_it(self):
        names = [CARRY, "unique-list-commit"]
        policies = {**BOTH, "blocks of 32": LLaDA(block_length=32)}
        found = compare(oracle(*names), names, split="development", prompts=3, policies=policies)
        assert [(left.task, left.policy) for left in found.left_out] == [("unique-list-commit", "blocks of 32")]
        assert "block_length is 32" in found.left_out[0].reason
        summary = summarise(found)
        assert summary.task_lines(CARRY)["policy"].tolist() == list(policies)
        assert summary.task_lines("unique-list-commit")["policy"].tolist() == list(BOTH)
        assert "without blocks of 32" in "\n".join(remarks(summary))

    def test_a_policy_that_raises_is_left_out_with_its_traceback(self):
        policies = {"r": REFERENCE, "broken": Broken(), **BOTH}
        found = compare(oracle(), [CARRY], split="development", prompts=2, policies=policies)
        (left,) = found.left_out
        assert (left.task, left.policy) == (CARRY, "broken")
        line = inspect.getsourcelines(Broken.act)[1] + 1
        at = f"test_run.py, line {line}"
        assert left.reason == f"unexpected ValueError: half: \ufffd ({at}); --out keeps its traceback"
        assert "in act" in left.traceback
        assert {row.policy for row in rows(found)} == {"r", *BOTH}
        summary = summarise(found)
        document = json.loads(report.summary_json(found, summary).encode())
        assert "Traceback" in document["left_out"][0]["traceback"]
        assert "without broken (unexpected ValueError" in "\n".join(remarks(summary))

    def test_ctrl_c_inside_a_policy_is_ctrl_c(self):
        policies = {**BOTH, "stopped": Broken(KeyboardInterrupt())}
        with pytest.raises(KeyboardInterrupt):
            compare(oracle(), [CARRY], split="development", prompts=2, policies=policies)

    def test_the_reference_may_not_be_left_out(self):
        with pytest.raises(ConfigError, match="block_length is 5"):
            compare(oracle(), [CARRY], split="development", prompts=2, policies={"reference": LLaDA(block_length=5)})


class TestFresh:
    def test_prompts_are_new_to_everyone(self):
        """Not of a split, and not of the stretches that training draws from."""
        seen = {e.prompt for split in SPLITS for e in find_task(CARRY).examples(split)}
        fresh = select_examples(TASKS[CARRY], FRESH, prompts=50)
        trained = {
            text.prompt
            for seed in (0, 7)
            for held in (False, True)
            for text in generate_texts(CARRY, seed, held, 0, 50, Folders())
        }
        assert len({e.id for e in fresh}) == 50
        assert not {e.prompt for e in fresh} & (seen | trained)

    def test_training_cannot_reach_them(self):
        """Unless somebody trains with a seed of a million or more."""
        assert FRESH_FROM // STRIDE >= 10**6

    def test_official_tasks_have_none(self):
        found = compare(oracle(), ["gsm8k"], split=FRESH, policies=BOTH)
        assert "constructed" in found.tasks[0].unavailable


class TestSummary:
    def test_lines_are_the_bootstrap_of_the_rows(self, two):
        summary = summarise(two, resamples=500, seed=3)
        for task in (CARRY, "td07-sparse-mask"):
            columns = {p: [r.utility for r in rows(two) if (r.task, r.policy) == (task, p)] for p in two.policies}
            for policy, values in columns.items():
                line = summary.line(task, policy)
                (expected,) = mean_over_tasks([np.array(values)[:, None]], seed=3, resamples=500)
                assert estimate(line, "utility") == pytest.approx(
                    (expected.value, expected.low, expected.high, expected.n)
                )
                less_P1 = (np.array(values) - np.array(columns["reference"]))[:, None]
                (expected,) = mean_over_tasks([less_P1], seed=3, resamples=500)
                expected = (expected.value, expected.low, expected.high, expected.n)
                assert estimate(line, "difference") == pytest.approx(expected)

    def test_best_and_picks(self, carry):
        summary = summarise(carry)
        assert summary.best_policy(CARRY)["policy"] == "in order"
        assert summary.best_policy(CARRY)["difference_low"] > 0
        assert summary.picks() == {CARRY: "in order", MACRO: "in order"}
        alone = summarise(compare(oracle(), [CARRY], split="development", prompts=2, policies={"r": REFERENCE}))
        assert alone.best_policy(CARRY) is None
        assert alone.picks() == {}

    def test_with_nothing_better_the_reference_is_named(self):
        policies = {"reference": IN_ORDER, "same": fixed_action(region="window:1", cardinality=1.0), "again": IN_ORDER}
        tied = summarise(compare(oracle(), [CARRY], split="development", prompts=2, policies=policies, steps=32))
        assert tied.best_policy(CARRY)["policy"] == "reference"
        assert tied.picks() == {CARRY: "reference", MACRO: "reference"}
        assert "| reference | " in report.card_table(tied).splitlines()[2]


@each_case(
    ("changes", "words"),
    [
        ({"split": "test"}, "unknown split 'test'"),
        ({"tasks": ["carry"]}, "did you mean carry-rtl"),
        ({"tasks": []}, "one or more"),
        ({"tasks": [CARRY, CARRY]}, "none twice"),
        ({"policies": {}}, "one or more"),
        ({"policies": {"half \ud800": REFERENCE}}, "name of a policy"),
        ({"prompts": 0}, "prompts is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"steps": 33}, "1 to 32, the horizon of carry-rtl"),
        ({"temperature": -1.0}, "temperature"),
    ],
)
def test_refusals(changes, words):
    options = {"tasks": [CARRY], "split": "development", "policies": BOTH, **changes}
    with pytest.raises(ConfigError, match=words):
        compare(oracle(), options.pop("tasks"), **options)


class TestSureFront:
    def test_sure_is_better_than_everything_as_cheap(self):
        rng = np.random.default_rng(0)
        base_P = rng.random(60)
        near_P = base_P + 0.3 + 0.05 * rng.standard_normal(60)
        table_PA = np.stack([base_P, base_P + 0.3, near_P, base_P + 1], 1)
        cost_A, how = [1.0, 2.0, 3.0, 4.0], {"seed": 5, "resamples": 300}
        sure = mark_sure_front([table_PA], cost_A, np.ones(4, bool), **how)
        for mine in range(4):
            others = [other for other in range(4) if other != mine and cost_A[other] <= cost_A[mine]]
            differences = [table_PA[:, [mine]] - table_PA[:, [other]] for other in others]
            assert sure[mine] == all(mean_over_tasks([x_P1], **how)[0].low > 0 for x_P1 in differences)
        assert sure.tolist() == [True, True, False, True]
