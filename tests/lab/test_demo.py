"""Expected utilities against calculations that share nothing with the decoder."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from unmask.base.errors import ConfigError, UnknownName
from unmask.lab.demo import AT_ONCE, CONTENDERS, FAMILIES, MODE, Contender, DemoProblem, demo_problems, run_demo

SMALL = [
    DemoProblem("dense", seed=1, n=5, vocab=2, dependence=2.5, prompt_length=1),
    DemoProblem("far", seed=0, n=4, vocab=3, dependence=3.0, prompt_length=2),
    DemoProblem("chain", seed=2, n=4, vocab=3, dependence=3.0, prompt_length=1),
]


def table(problem):
    """p(x) as a plain dict over all sequences."""
    p = problem.make_distribution().p
    return {x: float(p[x]) for x in itertools.product(range(problem.vocab), repeat=problem.n)}


def conditional(p, canvas, position, vocab):
    """P(X_position | what the canvas shows), by walking over every sequence."""
    mass = np.zeros(vocab)
    for x, weight in p.items():
        if all(seen is None or x[i] == seen for i, seen in enumerate(canvas)):
            mass[x[position]] += weight
    return mass / mass.sum()


def expectation(problem, answer):
    """E[p(x) / max p] over the prompts, for a function from prompt to answer."""
    p = table(problem)
    total = 0.0
    for prompt in itertools.product(range(problem.vocab), repeat=problem.prompt_length):
        matching = {x: w for x, w in p.items() if x[: problem.prompt_length] == prompt}
        total += sum(matching.values()) * p[answer(p, prompt)] / max(matching.values())
    return total


def surest_first(problem, per_step):
    """LLaDA's rule, written out: reveal the surest positions, the given number at each step."""

    def answer(p, prompt):
        canvas = [*prompt, *[None] * problem.new_tokens]
        for count in per_step:
            open_ = [i for i, token in enumerate(canvas) if token is None]
            found = {i: conditional(p, canvas, i, problem.vocab) for i in open_}
            for i in sorted(open_, key=lambda i: (-found[i].max(), i))[:count]:
                canvas[i] = int(found[i].argmax())
        return tuple(canvas)

    return answer


def in_order(problem, order):
    def answer(p, prompt):
        canvas = [*prompt, *[None] * problem.new_tokens]
        for i in order:
            canvas[i] = int(conditional(p, canvas, i, problem.vocab).argmax())
        return tuple(canvas)

    return answer


def row(comparison, problem, label):
    (found,) = [r for r in comparison.rows if (r.problem, r.label) == (problem.name, label)]
    return found


@pytest.fixture(scope="module", params=SMALL, ids=lambda problem: problem.name)
def small(request):
    return request.param


class TestExpectedUtility:
    def test_one_at_a_time(self, small):
        steps = small.new_tokens
        found = row(run_demo([small], [Contender("one", "llada", steps)], seeds=2), small, "one")
        assert found.utility == pytest.approx(expectation(small, surest_first(small, [1] * steps)), abs=1e-12)
        assert (found.deterministic, found.stderr, found.seeds) == (True, 0.0, 1)
        assert found.forwards == pytest.approx(steps)
        assert found.tokens_per_forward == pytest.approx(1.0)

    def test_several_at_a_time(self, small):
        found = row(run_demo([small], [Contender("two", "llada", 2)], seeds=2), small, "two")
        first = -(-small.new_tokens // 2)
        wanted = expectation(small, surest_first(small, [first, small.new_tokens - first]))
        assert found.utility == pytest.approx(wanted, abs=1e-12)
        assert found.tokens_per_forward == pytest.approx(small.new_tokens / 2)

    def test_everything_at_once_is_one_step(self, small):
        comparison = run_demo([small], [Contender("all", "llada", 1)], seeds=2)
        wanted = expectation(small, surest_first(small, [small.new_tokens]))
        assert row(comparison, small, AT_ONCE).utility == pytest.approx(wanted, abs=1e-12)
        assert row(comparison, small, "all").utility == pytest.approx(wanted, abs=1e-12)
        assert row(comparison, small, AT_ONCE).forwards == 1

    def test_the_most_probable_answer(self, small):
        found = row(run_demo([small], [Contender("one", "llada", 1)], seeds=2), small, MODE)
        assert (found.utility, found.forwards, found.tokens_per_forward) == (1.0, None, None)

    def test_random_order_within_its_standard_error(self, small):
        contender = Contender("random", "llada", small.new_tokens, {"remasking": "random"})
        found = row(run_demo([small], [contender], seeds=200), small, "random")
        orders = list(itertools.permutations(range(small.prompt_length, small.n)))
        exact = np.mean([expectation(small, in_order(small, order)) for order in orders])
        assert not found.deterministic
        assert found.seeds == 200
        assert abs(found.utility - exact) <= 4 * found.stderr + 1e-12

    def test_forwards_are_expected_over_the_prompts(self, small):
        contender = Contender("sure", "fixed", small.new_tokens, {"kappa": "above:0.7"})
        found = row(run_demo([small], [contender], seeds=2), small, "sure")
        p, total = table(small), 0.0
        for prompt in itertools.product(range(small.vocab), repeat=small.prompt_length):
            canvas = [*prompt, *[None] * small.new_tokens]
            weight = sum(w for x, w in p.items() if x[: small.prompt_length] == prompt)
            while None in canvas:
                seen = {i: conditional(p, canvas, i, small.vocab) for i, t in enumerate(canvas) if t is None}
                sure = [i for i in seen if seen[i].max() >= 0.7] or [max(seen, key=lambda i: seen[i].max())]
                for i in sure:
                    canvas[i] = int(seen[i].argmax())
                total += weight
        assert found.forwards == pytest.approx(total, abs=1e-12)


@pytest.fixture(scope="module")
def comparison():
    """The demonstration's contenders on problems of the same answer length, otherwise smaller."""
    fitting = [DemoProblem(family, seed=0, n=9, vocab=2, prompt_length=1) for family in FAMILIES]
    return run_demo(fitting, CONTENDERS, seeds=3)


class TestComparison:
    def test_a_row_for_each(self, comparison):
        labels = {MODE, AT_ONCE, *(c.label for c in CONTENDERS)}
        assert {(r.problem, r.label) for r in comparison.rows} == {(f"{f}/0", x) for f in FAMILIES for x in labels}
        assert len(comparison.rows) == len(FAMILIES) * len(labels)

    def test_who_draws(self, comparison):
        random = {r.label for r in comparison.rows if not r.deterministic}
        assert random == {"LLaDA, random order", "Dream, origin", "Info-Gain", "ReMDM, 8 steps"}
        assert all(r.seeds == (3 if r.label in random else 1) for r in comparison.rows)
        assert all(r.stderr == 0 for r in comparison.rows if r.deterministic)

    def test_reveals_tell_one_example(self, comparison):
        assert [reveal.label for reveal in comparison.reveals] == [c.label for c in CONTENDERS]
        name, _, prompt = comparison.example.partition(", prompt ")
        spread = {
            f"{f}/0": np.std([r.utility for r in comparison.rows if r.family == f and r.method]) for f in FAMILIES
        }
        assert name == max(spread, key=spread.get)
        for reveal in comparison.reveals:
            assert (reveal.step[0], reveal.remasked[0]) == (0, 0)
            assert min(reveal.step[1:]) >= 1
            assert reveal.text[0] == prompt.strip("'")
            assert 0 < reveal.utility <= 1 + 1e-12
        one_by_one = next(r for r in comparison.reveals if r.label == "LLaDA, 8 steps")
        assert sorted(one_by_one.step) == list(range(9))

    def test_configuration(self, comparison):
        config = comparison.config
        assert [p["name"] for p in config["problems"]] == [f"{f}/0" for f in FAMILIES]
        assert config["seeds"] == 3
        assert config["contenders"][3]["policy"] == {
            "name": "llada",
            "block_length": 4,
            "remasking": "low_confidence",
        }
        assert set(config["versions"]) == {"unmask", "torch", "numpy", "python", "threads"}

    def test_a_contender_does_not_depend_on_the_others(self, comparison):
        problem = DemoProblem("dense", seed=0, n=9, vocab=2, prompt_length=1)
        for contender in (CONTENDERS[1], CONTENDERS[4], CONTENDERS[-1]):
            alone = run_demo([problem], [contender], seeds=3)
            assert row(alone, problem, contender.label) == row(comparison, problem, contender.label)


class TestRefusals:
    def test_problems(self):
        assert [p.name for p in demo_problems(2)][:3] == ["dense/0", "dense/1", "chain/0"]
        with pytest.raises(ConfigError, match="1 or more"):
            demo_problems(0)
        for length in (0, 10):
            with pytest.raises(ConfigError, match="prompt_length"):
                DemoProblem("dense", seed=0, prompt_length=length)

    @pytest.mark.parametrize(
        ("chosen", "contenders", "seeds", "words"),
        [
            ([], [Contender("a", "llada", 1)], 2, "one or more"),
            (SMALL[:1], [], 2, "one or more"),
            (SMALL[:1], [Contender("a", "llada", 1)], 1, "at least two runs"),
            (SMALL[:1], [Contender("a", "llada", 1), Contender("a", "dream", 1)], 2, "no name twice"),
            ([SMALL[0], replace(SMALL[0], n=4)], [Contender("a", "llada", 1)], 2, "no name twice"),
            (SMALL[:1], [Contender("a", "llada", 9)], 2, "steps of row 0 is 9"),
        ],
    )
    def test_compare(self, chosen, contenders, seeds, words):
        with pytest.raises(ConfigError, match=words):
            run_demo(chosen, contenders, seeds=seeds)

    def test_unknown_method(self):
        with pytest.raises(UnknownName, match="llada"):
            run_demo(SMALL[:1], [Contender("a", "lada", 1)], seeds=2)


def test_random_numbers_know_a_problem_by_its_settings():
    """Not by the name of a class, or a rename would draw other numbers."""
    settings = "family='dense', seed=1, n=10, vocab=3, dependence=2.0, prompt_length=2"
    assert DemoProblem("dense", 1).identity == f"Problem({settings})"
