"""The bench by a clock that counts forwards: what is compared, how it is timed, and what a run says."""

import json

import pytest
import torch

from tests.helpers.tiny_bench import Counted, subject
from unmask.api.load import load
from unmask.base.errors import ConfigError, NotEnoughMemory, UnknownName
from unmask.lab.bench import (
    PARTS,
    PRODUCTS,
    PRODUCTS_SHARE,
    SHAPES,
    Bench,
    BenchFailure,
    BenchPlan,
    Effort,
    Stopwatch,
    Times,
    forward_operations,
    loaded_subject,
    needed_memory,
    random_subject,
    run_bench,
    step_policies,
    time_in_turns,
)
from unmask.lab.bench_outside import OutsideLoop


@pytest.fixture
def once(monkeypatch):
    """Every work is timed once."""
    monkeypatch.setattr(BenchPlan, "forward_effort", Effort(0, 1))
    monkeypatch.setattr(BenchPlan, "answer_effort", Effort(0, 1))


def counting(counted, quick=False, **loops):
    return Bench(counted.subject, BenchPlan(batches=(1,), quick=quick), counted.clock, **loops)


def by_name(bench):
    return {line.name: line for line in bench.lines}


class Ticks:
    """A clock that work turns on."""

    def __init__(self):
        self.time, self.ran = 0.0, []

    def work(self, name, *seconds):
        lasts = iter(seconds)

        def run():
            self.ran.append(name)
            self.time += next(lasts)

        return run

    @property
    def clock(self):
        return Stopwatch(now=lambda: self.time)


class TestClock:
    def test_each_gets_the_median_and_the_ends_of_its_own_seconds(self):
        ticks = Ticks()
        works = {"a": ticks.work("a", 100, 1, 5, 2), "b": ticks.work("b", 100, 40, 10, 30)}
        found = time_in_turns(works, ticks.clock, Effort(warm_up=1, repeats=3))
        assert found == {"a": Times(2, 1, 5, 3), "b": Times(30, 10, 40, 3)}

    def test_the_device_is_waited_for_before_and_after_the_work(self):
        seen = []
        clock = Stopwatch(now=lambda: float(len(seen)), wait=lambda: seen.append("wait"))
        assert clock.time_work(lambda: seen.append("work")) == 2
        assert seen == ["wait", "work", "wait"]


class TestSubject:
    def test_what_does_not_fit_is_refused_before_it_is_made(self):
        with pytest.raises(NotEnoughMemory, match=r"llada-8b needs .* GiB in bf16 .* 4096 rows; allowed: .* GiB"):
            random_subject("llada-8b", torch.device("cpu"), torch.bfloat16, rows=4096)
        spec = SHAPES["llada-8b"].spec
        assert spec.parameters == 8_015_581_184  # the published checkpoint's
        assert needed_memory(spec, 0, torch.bfloat16) == 2 * spec.parameters

    def test_unknown_shapes_and_models_without_layers_are_refused(self):
        with pytest.raises(UnknownName, match="known: dream-7b, llada-8b"):
            random_subject("llada", torch.device("cpu"), torch.bfloat16)
        with pytest.raises(ConfigError, match=r"exact has no layers .* such as mini"):
            loaded_subject("exact", load("exact", n=4, vocab=3).denoiser)


class TestForward:
    def test_operations_are_those_of_products_attention_and_wanted_logits(self):
        layer = 3 * 32 * 32 + 32 * 32 + 3 * 48 * 32
        per_slot = 2 * (layer + 2 * 16 * 32)
        assert forward_operations(subject(), 3) == 2 * 3 * (16 * per_slot + 4 * 64 * 32)

    def test_the_share_is_of_the_rate_of_large_products(self, once):
        clock = Stopwatch(now=iter(range(0, 1000, 5)).__next__)
        bench = Bench(subject(), BenchPlan(batches=(2,)), clock)
        bench.measure_forward(2)
        lines = by_name(bench)
        assert next(iter(lines)) == "eager"
        assert lines["eager"].times.median == 5
        # Both took five seconds by that clock, the products for no less work.
        (share,) = (ratio for ratio in bench.ratios if ratio.name == PRODUCTS_SHARE)
        rate = forward_operations(bench.subject, 2) / 5
        assert share.value == pytest.approx(rate / (1e12 * lines[PRODUCTS].more["TFLOP/s"]))
        assert share.value <= 1


class TestStep:
    def test_a_step_is_one_forward_of_its_own_run(self, once):
        counted = Counted(subject())
        bench, quick = counting(counted), counting(counted, quick=True)
        bench.measure_step(2)
        assert {line.times.median for line in bench.lines} == {1.0}
        assert [ratio.value for ratio in bench.ratios] == [1.0] * 4
        quick.measure_step(2)
        assert set(by_name(bench)) - set(by_name(quick)) == {"llada, sampled"}

    def test_gates_that_never_open_read_and_change_nothing(self):
        one = subject()
        _, fixed, four = step_policies(one)
        assert four.needs.attention
        ends = [one.prepare_decode(one.network, policy, 2)().state.tokens_BL for policy in (fixed, four)]
        assert torch.equal(*ends)


def loop(counted, forwards):
    """Somebody's loop that takes so many forwards and answers with ones."""

    def generate(model, prompt, steps, gen_length):
        counted.forwards += forwards
        return torch.cat((prompt, torch.ones(len(prompt), gen_length, dtype=torch.long)), 1), forwards

    return OutsideLoop("theirs", generate, None, {"gen_length": 8})


class TestAnswers:
    def test_tokens_per_second_and_the_loop_beside_ours(self, once):
        counted = Counted(subject())
        bench = counting(counted, authors={"theirs": loop(counted, 12)})
        bench.measure_decode(2)
        lines = by_name(bench)
        assert lines["llada"].more == {"tokens/s": 2 * 8 / 4, "ms/step": 1000.0}
        assert [(ratio.name, ratio.value) for ratio in bench.ratios] == [("theirs over ours", 3.0)]
        assert "B 2: 0.0% of the tokens" in bench.remarks[0]

    def test_caches_against_the_exact_network_and_loops_for_one_row_only(self, once):
        counted = Counted(subject())
        one, two = (counting(counted, fast_dllm={"dual": loop(counted, 40)}) for _ in range(2))
        one.measure_caches(1)
        ratios = {ratio.name: ratio.value for ratio in one.ratios}
        # Two blocks of two steps: a complete pass each, then 4 of the 32 slots, or 8 and 4.
        assert ratios["uncached over dual"] == 4 / (2 + 8 / 32)
        assert ratios["uncached over prefix"] == 4 / (2 + 12 / 32)
        assert ratios["Fast-dLLM on their modelling, dual over ours"] == 40 / (2 + 8 / 32)
        two.measure_caches(2)
        assert not [name for name in by_name(two) if "Fast-dLLM" in name]


class TestStudy:
    def test_the_share_is_of_full_forwards_and_dummies_are_a_loss(self, once):
        bench = counting(Counted(subject()), quick=True)
        bench.measure_study(4)
        lines = by_name(bench)
        assert lines["network alone"].more["row-forwards/s"] == 4
        # By a clock that stands still between forwards, all that is lost are dummies.
        (share,) = bench.ratios
        assert share.value == pytest.approx(lines["branch engine"].more["rows filled"])
        assert 0 < share.value < 1


class TestRun:
    @pytest.mark.parametrize("batches", [(), (0,), (8, 5000)])
    def test_batches_that_make_no_sense_are_refused(self, batches):
        with pytest.raises(ConfigError, match="--batch-size"):
            BenchPlan(batches=batches)

    def test_every_part_at_every_size_and_the_study_at_the_largest(self):
        parts = []
        result = run_bench(subject(), BenchPlan(batches=(1, 2), quick=True), lambda *part: parts.append(part))
        assert not result.failures
        both = [(part, batch) for part in ("forward", "step", "decode") for batch in (1, 2)]
        assert parts == [*both, ("caches", 1), ("study", 2)]
        document = json.loads(json.dumps(result.to_json_types()))
        assert document["format"] == "unmask-bench/2"
        assert list(document) == [
            *("format", "machine", "model", "settings", "lines", "ratios", "remarks", "failures", "seconds")
        ]
        assert list(document["lines"][0]) == ["part", "name", "batch", "per", "times", "more"]
        assert list(document["ratios"][0]) == ["part", "name", "batch", "value"]
        assert {line["part"] for line in document["lines"]} == set(PARTS)
        assert {"torch", "triton", "threads", "engine", "code", "cores"} <= set(document["machine"])
        assert document["model"]["dtype"] == "fp32"
        assert document["settings"] == {"batches": [1, 2], "parts": list(PARTS), "quick": True}

    def test_a_part_that_fails_is_named_and_the_others_go_on(self, monkeypatch):
        def broken(self, batch):
            raise RuntimeError("CUDA out of memory\nmore of it")

        monkeypatch.setattr(Bench, "measure_forward", broken)
        result = run_bench(subject(), BenchPlan(("forward", "decode"), (1,), quick=True))
        assert result.failures == [BenchFailure("forward", 1, "RuntimeError: CUDA out of memory")]
        assert {line.part for line in result.lines} == {"decode"}
