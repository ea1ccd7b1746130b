"""What hindsight could add, axis by axis."""

from tests.helpers import made_studies as made
from unmask.lab.analysis import analyse
from unmask.report.demo.opportunity import opportunity_svg, opportunity_words


def test_every_task_and_axis_has_its_line(known):
    drawn = opportunity_svg(known)
    assert all(name in drawn for name in ("fill", "sort", "score", "region", "commitment"))
    words = opportunity_words(known)
    assert "The largest is region on fill: 0.700" in words


def test_without_numbers_there_is_no_picture(tmp_path):
    nothing = analyse(made.store(tmp_path / "s", made.known(rollouts=1), temperature=0.5), resamples=20)
    assert opportunity_svg(nothing) == ""
    assert opportunity_words(nothing) == "Nothing was measured."
