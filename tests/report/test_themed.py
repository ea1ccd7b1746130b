"""Figures that follow the reader's setting."""

import base64
import re
import xml.etree.ElementTree as ET

from matplotlib.colors import to_rgb

from unmask.axes import AXES
from unmask.report.pages import asset
from unmask.report.themed import AXIS_COLOURS, FAINT, INK, PALETTE, picture, themed_svg


def drawn(fig):
    ax = fig.subplots()
    ax.set_title("T & $x_", color=INK)
    ax.plot([0, 1], [0, 1], color=FAINT)
    ax.plot([0, 1], [1, 0], color=AXIS_COLOURS["region"])
    ax.plot([0, 1], [1, 1], color="#123456")


def test_colours_are_variables_with_a_value_for_either_theme():
    svg = themed_svg(drawn, (3, 2))
    ET.fromstring(svg)
    light, dark = re.findall(r":root \{(.*?)\}", svg)
    used = set(re.findall(r"var\((--\w+)\)", svg))
    assert used
    assert all(f"{name}:" in light and f"{name}:" in dark for name in used)
    assert "#123456" in svg
    assert INK not in svg.replace(light, "")
    assert "T &amp; $x_" in svg


def test_the_same_drawing_the_same_text():
    assert themed_svg(drawn, (3, 2)) == themed_svg(drawn, (3, 2))


def test_the_palette_is_that_of_every_page():
    light, dark = asset("base.css").split("prefers-color-scheme: dark", 1)
    assert set(AXIS_COLOURS) == set(AXES)
    assert f"--region: {PALETTE['region'][0]};" in light
    assert f"--region: {PALETTE['region'][1]};" in dark
    assert PALETTE["paper"][0] == "#ffffff"
    # Light ink on dark paper, which print does not have.
    (_, paper), (_, ink) = PALETTE["paper"], PALETTE["ink"]
    assert sum(to_rgb(paper)) < 0.5 < 2.4 < sum(to_rgb(ink))
    # A colour stands for one name, or the wrong one would change with the theme.
    assert len({colours[0] for colours in PALETTE.values()}) == len(PALETTE)


def test_a_picture_says_what_it_shows():
    shown = picture("<svg/>", 'A "b" <c>')
    assert 'alt="A &quot;b&quot; &lt;c&gt;"' in shown
    assert base64.b64decode(re.findall('base64,([^"]+)', shown)[0]) == b"<svg/>"
