"""Verdicts worked out by hand, and short runs of a tiny checkpoint on real problems."""

import json
import math
from dataclasses import replace

import pytest

from tests.helpers.cases import each_case
from unmask.api.load import load
from unmask.base.errors import ConfigError, UnknownName
from unmask.core import SamplingParams
from unmask.lab import published
from unmask.lab.published import LLADA
from unmask.lab.verify import Agreement, Target, choose_target, choose_tasks, compare_share, prepare_run, verify_run
from unmask.methods import LLaDA
from unmask.stats import wilson_interval


class TestVerdict:
    @each_case(
        ("right", "n", "figure", "expected"),
        [
            (1037, 1319, 78.6, Agreement.AGREES),
            (1000, 1319, 78.6, Agreement.BELOW),
            (1080, 1319, 78.6, Agreement.ABOVE),
            # 16 of 20 is 80 %, but the interval is 58.4 to 91.9.
            (16, 20, 78.6, Agreement.CANNOT_TELL),
            # However few: none of 20 right is no 78.6 %.
            (0, 20, 78.6, Agreement.BELOW),
            (20, 20, 78.6, Agreement.ABOVE),
            (0, 0, 78.6, Agreement.CANNOT_TELL),
            (1319, 1319, None, Agreement.NO_FIGURE),
        ],
    )
    def test_of_a_share(self, right, n, figure, expected):
        agreement, says = compare_share(figure, wilson_interval(right, n), whole=False)
        assert agreement is expected
        assert says.startswith(expected.value if figure is not None else "no published figure")

    def test_the_figure_on_the_edge_of_the_interval_agrees(self):
        share = wilson_interval(1037, 1319)
        assert compare_share(100 * share.high, share, whole=True)[0] is Agreement.AGREES
        assert compare_share(100 * share.high + 0.01, share, whole=True)[0] is Agreement.BELOW
        assert compare_share(100 * share.low - 0.01, share, whole=True)[0] is Agreement.ABOVE


class TestTarget:
    def test_a_model_with_figures(self):
        assert choose_target("llada", "llada") == Target(LLADA, trial=False)
        assert choose_target("GSAI-ML/LLaDA-1.5", "llada").published.name == "llada-1.5"
        assert choose_target("some/folder", "llada", "llada") == Target(LLADA, trial=False)

    def test_one_without_gets_the_settings_of_its_family(self):
        found = choose_target("mini", "llada")
        assert found.trial
        assert {run.figure for run in found.published.runs} == {None}
        assert choose_target("mini-dream", "Dream").published.name == "dream"

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("exact", None), "is of no family with published figures"),
            (("mini-dream", "Dream", "llada"), "those of a model of the family 'Dream'"),
            (("mini", "llada", "gpt"), "llada, llada-1.5, dream"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, arguments, words):
        with pytest.raises(ConfigError, match=words):
            choose_target(*arguments)

    def test_tasks(self):
        assert choose_tasks() == ("gsm8k", "humaneval")
        assert choose_tasks(["humaneval", "humaneval"]) == ("humaneval",)
        with pytest.raises(UnknownName, match="gsm8k-pure"):
            choose_tasks(["mbpp"])
        with pytest.raises(UnknownName, match="settings of GSAI-ML/LLaDA"):
            published.LLADA_15.run("gsm8k-pure")


def short(model, **more):
    """The same runs with answers of eight tokens in two steps."""
    cut = {"new_tokens": 8, "steps": 2, "policy": LLaDA(), **more}
    return replace(model, runs=tuple(replace(run, **cut) for run in model.runs))


SHORT = Target(short(LLADA), trial=False)
BARE = Target(short(LLADA, shots=0), trial=False)
ONE = Target(short(LLADA, shots=1), trial=False)


@pytest.fixture(scope="module")
def tiny(scaled, tmp_path_factory):
    return load(str(scaled.llada(tmp_path_factory.mktemp("ck") / "llada")), dtype="fp32", device="cpu")


@pytest.fixture(scope="module")
def data(shared):
    return shared / "data"


class TestRuns:
    def test_a_subset_is_labelled_and_compared(self, tiny, data):
        prepared = prepare_run(tiny, ONE, "gsm8k", prompts=3, data_dir=data)
        assert (prepared.shots, prepared.problems, prepared.forwards) == (1, 1319, 6)
        found = verify_run(tiny, prepared, ONE)
        assert (len(found.prepared.chosen), found.forwards, found.share.n, found.unjudged) == (3, 6, 3, 0)
        assert found.right == (found.answers["utility"] == 1).sum()
        assert found.agreement is Agreement.BELOW
        assert "a subset: 3 of 1319" in found.labels[0]
        assert set(found.prepared.files) == {"gsm8k/test.jsonl", "gsm8k/train.jsonl"}
        assert found.config["versions"]

    def test_the_proposal_decodes_and_is_recorded(self, tiny, data):
        barred = replace(
            ONE,
            published=short(LLADA, shots=1, sampling=SamplingParams(eos_penalty=math.inf, confidence_eos_eot_inf=True)),
        )
        prepared = prepare_run(tiny, barred, "gsm8k", prompts=1, data_dir=data)
        found = verify_run(tiny, prepared, barred)
        assert found.config["proposal"]["confidence_eos_eot_inf"] is True
        again = tiny.generate(
            [[*prepared.turns, {"role": "user", "content": prepared.chosen[0].prompt}]],
            policy="llada",
            max_new_tokens=8,
            steps=2,
            eos_penalty=math.inf,
            confidence_eos_eot_inf=True,
        )
        assert found.answers["answer"][0] == again.text

    def test_goes_on_where_it_was_stopped(self, tiny, data, tmp_path):
        class Stopped(Exception):
            pass

        def stop(now):
            if now.done == 2:
                raise Stopped

        prepared = prepare_run(tiny, BARE, "gsm8k", prompts=3, data_dir=data)
        with pytest.raises(Stopped):
            verify_run(tiny, prepared, BARE, batch_size=1, work_dir=tmp_path, on_progress=stop)
        told = []
        found = verify_run(tiny, prepared, BARE, batch_size=1, work_dir=tmp_path, on_progress=told.append)
        assert [now.kept for now in told] == [1, 2, 2]
        assert found.answers.equals(verify_run(tiny, prepared, BARE, batch_size=1).answers)
        with pytest.raises(ConfigError, match="another comparison"):
            verify_run(tiny, prepared, BARE, seed=1, batch_size=1, work_dir=tmp_path)
        assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))["body"]["prompts"] == 3

    def test_a_short_context_shows_fewer_solved_problems_in_a_trial_only(self, tiny, data):
        trial = Target(SHORT.published.without_figures(), trial=True)
        whole = prepare_run(tiny, trial, "gsm8k", prompts=2, data_dir=data)
        assert whole.shots == 4
        longest = max(len(tiny.codec.encode([*whole.turns[:2], _user(e)])) for e in whole.chosen) + 8
        small = replace(tiny, max_length=longest)
        prepared = prepare_run(small, trial, "gsm8k", prompts=2, data_dir=data)
        assert prepared.shots == 1
        found = verify_run(small, prepared, trial)
        assert found.too_long == ()
        assert f"solved problems shown: 1, not 4; more do not fit into {longest} positions" in found.labels
        assert found.conclusion.endswith("a trial of the procedure, says nothing about LLaDA-8B-Instruct")
        strict = prepare_run(small, SHORT, "gsm8k", prompts=2, data_dir=data)
        assert strict.shots == 4

    def test_problems_that_do_not_fit_are_named(self, tiny, data):
        trial = Target(SHORT.published.without_figures(), trial=True)
        prepared = prepare_run(tiny, trial, "humaneval", prompts=2, data_dir=data)
        lengths = {e.id: len(tiny.codec.encode(e.prompt)) + 8 for e in prepared.chosen}
        short_one, long_one = sorted(lengths, key=lengths.__getitem__)
        small = replace(tiny, max_length=lengths[short_one])
        found = verify_run(small, prepared, trial)
        assert found.too_long == (long_one,)
        assert found.answers["prompt"].tolist() == [short_one]
        assert any(
            "left out: 1 of 2 problems, the longest, which leave no room for 8 tokens" in label
            for label in found.labels
        )

    def test_a_published_model_without_a_figure(self, scaled, data, tmp_path):
        """Dream's own rule and filters, and no word of a trial."""
        model = load(str(scaled.dream(tmp_path / "dream")), dtype="fp32", device="cpu")
        runs = tuple(replace(run, new_tokens=8, steps=2, shots=0) for run in published.DREAM.runs)
        target = Target(replace(published.DREAM, runs=runs), trial=False)
        prepared = prepare_run(model, target, "gsm8k", prompts=1, data_dir=data)
        found = verify_run(model, prepared, target)
        assert found.config["policies"]["authors"]["alg"] == "entropy"
        assert found.config["proposal"]["top_p"] == 0.95
        assert found.agreement is Agreement.NO_FIGURE
        assert found.conclusion.startswith("no published figure of Dream-org/Dream-v0-Instruct-7B could be checked")

    def test_no_problem_that_fits_gives_no_conclusion(self, tiny, data):
        small = replace(tiny, max_length=20)
        prepared = prepare_run(small, SHORT, "gsm8k", prompts=2, data_dir=data)
        found = verify_run(small, prepared, SHORT)
        assert (found.agreement, found.share.n, len(found.too_long)) == (Agreement.CANNOT_TELL, 0, 2)
        assert found.conclusion == "cannot tell: no answer was judged"


def _user(example):
    return {"role": "user", "content": example.prompt}
