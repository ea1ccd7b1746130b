"""What hindsight could add, axis by axis."""

from dataclasses import replace

from tests.helpers import made_findings
from unmask.report.demo.opportunity import opportunity_svg, opportunity_words


def test_every_task_and_axis_has_its_line(known):
    drawn = opportunity_svg(known.opportunity)
    assert all(name in drawn for name in ("fill", "sort", "score", "region", "commitment"))
    words = opportunity_words(known.opportunity)
    assert "The largest is region on fill: 0.700" in words


def test_without_numbers_there_is_no_picture(tmp_path):
    nothing = made_findings.nothing(tmp_path).opportunity
    assert opportunity_svg(nothing) == ""
    assert opportunity_words(nothing) == "Nothing was measured."
    assert opportunity_svg(replace(nothing, cells=())) == ""
