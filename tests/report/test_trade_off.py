"""The figure of quality against cost: what is named, what is numbered, and that nothing lies on anything."""

import xml.etree.ElementTree as ET
from itertools import combinations
from math import nan

import matplotlib.axes
import pytest

from unmask.report import trade_off as figure
from unmask.report.trade_off import CostPanel, CostPoint, trade_off
from unmask.stats import Estimate, pareto_front

NAMES = ["reference", *(f"method-{n}" for n in range(19))]


def points():
    """Twenty policies, half of them at the same cost."""
    costs = [16.0 if n % 2 else 3.0 + 2 * n for n in range(20)]
    worth = [0.2 + (n * 7 % 20) / 30 for n in range(20)]
    front = pareto_front(worth, costs)
    return tuple(
        CostPoint(name, cost, Estimate(u, u - 0.05, u + 0.05), bool(f), n % 3 == 0, n == 0)
        for n, (name, cost, u, f) in enumerate(zip(NAMES, costs, worth, front, strict=True))
    )


def draw(panels, **options):
    return trade_off(panels, NAMES, title="A title", cost="forwards", notes=["A note."], **options)


@pytest.fixture
def labels(monkeypatch):
    """Text and box of every label that is placed."""
    placed = []
    real = figure._place_label

    def recorded(ax, note, taken, lines):
        result = real(ax, note, taken, lines)
        placed.append((note.get_text(), result[0], list(taken)))
        return result

    monkeypatch.setattr(figure, "_place_label", recorded)
    return placed


@pytest.mark.slow
def test_members_of_the_front_are_named_others_numbered_and_none_covers_another(labels):
    draw([CostPanel("t", points())])
    named = {text for text, _, _ in labels if not text[0].isdigit()}
    assert named == {p.policy for p in points() if p.front or p.reference}
    numbers = {int(n) for text, _, _ in labels if text[0].isdigit() for n in text.split(",")}
    assert numbers == {NAMES.index(p.policy) + 1 for p in points() if not (p.front or p.reference)}
    boxes = [box for _, box, _ in labels]
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]


@pytest.mark.slow
def test_the_front_is_a_step_line_through_its_members(monkeypatch):
    drawn = []
    real = matplotlib.axes.Axes.step
    monkeypatch.setattr(
        matplotlib.axes.Axes,
        "step",
        lambda ax, xs, ys, **k: drawn.append((xs, ys, k["where"])) or real(ax, xs, ys, **k),
    )
    draw([CostPanel("t", points())])
    ((xs, ys, where),) = drawn
    members = sorted((p.cost, p.utility.value) for p in points() if p.front)
    assert list(zip(xs, ys, strict=True))[:-1] == members
    assert (where, ys[-1]) == ("post", members[-1][1])


@pytest.mark.slow
def test_is_a_whole_picture_and_the_same_bytes_each_time():
    panels = [CostPanel(f"t{n}", points()[:5]) for n in range(2)]
    image = draw(panels)
    assert ET.fromstring(image).tag.endswith("svg")
    assert draw(panels) == image
    assert b"<dc:date>" not in image
    assert draw(panels, image="png").startswith(b"\x89PNG")


@pytest.mark.filterwarnings("error")
def test_numbers_that_are_not_there_and_hostile_names():
    bad = "漢字 $x^{_ <&> \x00\ud800 --> " + "y" * 90
    strange = (
        CostPoint(bad, 2.0, Estimate(0.5, nan, nan), True, True, True),
        CostPoint("no cost", nan, Estimate(0.5, 0.4, 0.6)),
        CostPoint("no utility", 1.0, Estimate(nan, nan, nan)),
    )
    image = trade_off(
        [CostPanel(bad, strange), CostPanel("empty", strange[1:])], [bad], title=bad, cost="forwards", notes=[bad]
    )
    assert ET.fromstring(image).tag.endswith("svg")
