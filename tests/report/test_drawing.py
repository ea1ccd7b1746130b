"""Drawings: the reader's light or dark setting, equal bytes, and labels that cover nothing."""

import base64
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import combinations
from math import nan

import pytest
from matplotlib.figure import Figure

from unmask.axes import AXES
from unmask.report.drawing import (
    AXIS_COLOURS,
    FAINT,
    INK,
    PALETTE,
    CostPoint,
    draw_cost_panel,
    save_figure,
    themed_picture,
    trade_off,
)
from unmask.report.pages import read_asset
from unmask.stats import Estimate, pareto_front

NAMES = ["reference", *(f"method-{n}" for n in range(19))]


def draw_lines(fig):
    ax = fig.subplots()
    ax.set_title("T & $x_", color=INK)
    ax.plot([0, 1], [0, 1], color=FAINT)
    ax.plot([0, 1], [1, 0], color=AXIS_COLOURS["region"])
    ax.plot([0, 1], [1, 1], color="#123456")


def svg_of(picture):
    return base64.b64decode(re.findall('base64,([^"]+)', picture)[0]).decode()


def test_pictures_follow_the_theme_and_say_what_they_show():
    picture = themed_picture(draw_lines, (3, 2), 'A "b" <c>')
    assert 'alt="A &quot;b&quot; &lt;c&gt;"' in picture
    svg = svg_of(picture)
    ET.fromstring(svg)
    light, dark = re.findall(r":root \{(.*?)\}", svg)
    used = set(re.findall(r"var\((--\w+)\)", svg))
    assert used
    assert all(f"{name}:" in light and f"{name}:" in dark for name in used)
    assert "#123456" in svg
    assert INK not in svg.replace(light, "")
    assert "T &amp; $x_" in svg


def test_palette_is_that_of_every_page():
    light, dark = read_asset("base.css").split("prefers-color-scheme: dark", 1)
    assert set(AXIS_COLOURS) == set(AXES)
    assert f"--region: {PALETTE['region'][0]};" in light
    assert f"--region: {PALETTE['region'][1]};" in dark
    # A colour stands for one name, or the wrong one would change with the theme.
    assert len({colours[0] for colours in PALETTE.values()}) == len(PALETTE)


@pytest.mark.parametrize(("image", "start"), [("pdf", b"%PDF"), ("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_equal_drawings_are_equal_bytes(image, start):
    drawn = save_figure(draw_lines, (3, 2), image)
    assert drawn.startswith(start)
    assert drawn == save_figure(draw_lines, (3, 2), image)


def test_imports_leave_the_backend_alone():
    """A notebook draws with a backend of its own."""
    code = (
        "import matplotlib; matplotlib.use('svg'); import unmask.report.study, unmask.report.compare, "
        "unmask.report.demo; assert matplotlib.get_backend() == 'svg'"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def points():
    """Twenty policies, half of them at the same cost."""
    costs = [16.0 if n % 2 else 3.0 + 2 * n for n in range(20)]
    worth = [0.2 + (n * 7 % 20) / 30 for n in range(20)]
    front = pareto_front(worth, costs)
    return [
        CostPoint(name, cost, Estimate(u, u - 0.05, u + 0.05), bool(f), n % 3 == 0, n == 0)
        for n, (name, cost, u, f) in enumerate(zip(NAMES, costs, worth, front, strict=True))
    ]


def test_front_is_named_others_numbered_and_labels_cover_nothing():
    fig = Figure((5, 3.9), dpi=100)
    ax = fig.add_axes((0.13, 0.14, 0.83, 0.75))
    draw_cost_panel(ax, points(), {name: str(at) for at, name in enumerate(NAMES, start=1)}, "forwards")
    labels = [text for text in ax.texts if text.get_text()]
    named = {text.get_text() for text in labels if not text.get_text()[0].isdigit()}
    assert named == {p.policy for p in points() if p.has_name}
    numbers = {int(n) for text in labels if text.get_text()[0].isdigit() for n in text.get_text().split(",")}
    assert numbers == {NAMES.index(p.policy) + 1 for p in points() if not p.has_name}
    boxes = [text.get_window_extent() for text in labels]
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]


@pytest.mark.filterwarnings("error")
def test_absent_numbers_and_hostile_names_are_drawn():
    bad = "漢字 $x^{_ <&> \x00\ud800 --> " + "y" * 90
    strange = [
        CostPoint(bad, 2.0, Estimate(0.5, nan, nan), True, True, True),
        CostPoint("no cost", nan, Estimate(0.5, 0.4, 0.6)),
        CostPoint("no utility", 1.0, Estimate(nan, nan, nan)),
    ]
    drawing = trade_off([(bad, strange), ("empty", strange[1:])], [bad], bad, "forwards", [bad])
    assert ET.fromstring(save_figure(*drawing, "svg")).tag.endswith("svg")
