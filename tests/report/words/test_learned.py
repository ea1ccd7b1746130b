"""Whether a learned detector helps: every verdict from numbers made by hand, and both planted truths."""

from dataclasses import replace

import pytest

from tests.helpers import made_studies as made
from tests.helpers.made_findings import quick
from unmask.report.study import study_report
from unmask.report.words.learned import NOTHING_LEARNED, helps
from unmask.stats import Estimate

LIFT = ("difference", "ranked_lift", 0.1)
UP, DOWN, ZERO = Estimate(0.01, 0.005, 0.02), Estimate(-0.01, -0.02, -0.005), Estimate(0.001, -0.01, 0.01)


def found_on(folder, kinds, **how):
    tables, read = made.learnable(kinds, prompts=30, **how)
    return quick(made.store(folder / "study", tables, read=read, learned=True))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return found_on(tmp_path_factory.mktemp("noise"), {"guess": "alone", "other": "alone"})


def said(found, *, lift, auroc=ZERO, unreliable=""):
    """The paragraph if the mean of all were like that."""
    learned = found.learned
    means = tuple(
        replace(mean, numbers={**mean.numbers, LIFT: lift, ("difference", "auroc", ""): auroc}, unreliable=unreliable)
        for mean in learned.means
    )
    (text,) = helps(found.opportunity, replace(learned, means=means))
    return text


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"lift": UP}, "small: the learned detector helps. Learned less bins, the mean over 2 tasks and 2 settings"),
        ({"lift": UP, "unreliable": "few"}, "a hint that the learned detector helps, no more"),
        ({"lift": ZERO}, "does not help: it is not shown to be better than the bins"),
        ({"lift": ZERO, "auroc": UP}, "does not help: it ranks states better than the bins of one signal, but no more"),
        ({"lift": DOWN, "auroc": UP}, "does not help: it does worse than the bins"),
        ({"lift": DOWN, "unreliable": "few"}, "does not help: it seems to do worse"),
    ],
)
def test_every_verdict(found, how, words):
    text = said(found, **how)
    assert words in text
    assert f"{how['lift'].value:.4f} [{how['lift'].low:.4f}, {how['lift'].high:.4f}]" in text


def test_on_noise_the_page_says_that_it_does_not_help(found):
    report = study_report(found)
    (note,) = [note for note in report.notes if "learned detector" in note]
    assert "the learned detector does not help" in note
    assert "above zero on none of 2, below on none" in note


def test_where_a_combination_tells_it_says_that_it_helps(tmp_path):
    (text,) = helps((found := found_on(tmp_path, {"find": "together"})).opportunity, found.learned)
    assert "the learned detector helps" in text
    assert "above zero on 1 of 1" in text


def test_nothing_learned(found):
    assert list(helps(found.opportunity, replace(found.learned, cells=(), means=()))) == [NOTHING_LEARNED]
