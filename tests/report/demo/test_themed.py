"""Figures that follow the reader's setting."""

import base64
import re
import xml.etree.ElementTree as ET

from unmask.look.page import asset
from unmask.report.demo.themed import _DARK_AXES, AXIS_COLOURS, FAINT, INK, picture, themed_svg


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
    used = set(re.findall(r"var\((--c\d+)\)", svg))
    assert used
    assert all(f"{name}:" in light and f"{name}:" in dark for name in used)
    assert "#123456" in svg
    assert INK not in svg.replace(light, "")
    assert "T &amp; $x_" in svg


def test_the_same_drawing_the_same_text():
    assert themed_svg(drawn, (3, 2)) == themed_svg(drawn, (3, 2))


def test_axes_have_the_colours_of_every_page():
    light, dark = asset("base.css").split("prefers-color-scheme: dark", 1)
    for axis, colour in AXIS_COLOURS.items():
        assert f"--{axis}: {colour}" in light
        assert f"--{axis}: {_DARK_AXES[axis]}" in dark


def test_a_picture_says_what_it_shows():
    shown = picture("<svg/>", 'A "b" <c>')
    assert 'alt="A &quot;b&quot; &lt;c&gt;"' in shown
    assert base64.b64decode(re.findall('base64,([^"]+)', shown)[0]) == b"<svg/>"
