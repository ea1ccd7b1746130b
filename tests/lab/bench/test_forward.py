"""Forwards by engine."""

import torch

from tests.helpers.tiny_bench import Counted, subject
from unmask.lab.bench import Effort, Stopwatch
from unmask.lab.bench.forward import PRODUCTS, SHARE, LargeProducts, engines, flops, measure, measure_memory


def test_operations_are_those_of_products_attention_and_wanted_logits():
    one = subject()
    layer = 3 * 32 * 32 + 32 * 32 + 3 * 48 * 32
    per_slot = 2 * (layer + 2 * 16 * 32)
    assert flops(one, 3) == 2 * 3 * (16 * per_slot + 4 * 64 * 32)


def test_large_products_do_at_least_as_much_work():
    products = LargeProducts.like(subject(), 2.5 * 2 * 512**3)
    assert (products.count, products.flops) == (3, 3 * 2 * 512**3)


def test_one_engine_on_a_cpu_and_its_share_of_the_products_rate():
    one = subject()
    found = measure(one, 2, Effort(0, 1), Stopwatch(now=iter(range(0, 1000, 5)).__next__))
    lines = {line.name: line for line in found.lines}
    assert next(iter(lines)) == "eager"
    assert lines["eager"].times.median == 5
    (share,) = (ratio for ratio in found.ratios if ratio.name == SHARE)
    products = LargeProducts.like(one, flops(one, 2))
    # Both took five seconds by that clock.
    assert share.value == flops(one, 2) / products.flops
    assert lines[PRODUCTS].times.median == 5 / products.count


def test_long_rows_are_measured_as_they_are_and_memory_on_a_gpu_only():
    counted = Counted(subject())
    found = measure_memory(counted.subject, 3, 64, Effort(0, 1), counted.clock)
    (line,) = found.lines
    assert (line.name, line.batch, line.times.median) == ("3 rows of 64 slots", 3, 2.0)
    assert (line.more, found.ratios) == ({}, [])


def test_the_subject_keeps_its_engine():
    counted = Counted(subject())
    measure(counted.subject, 1, Effort(0, 1), Stopwatch())
    assert counted.forwards == 0
    assert engines(torch.device("cpu")) == ["eager"]
