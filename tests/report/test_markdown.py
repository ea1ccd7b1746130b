"""Tables and reports as Markdown."""

from tests.helpers import made_reports
from unmask.report.markdown import grid_markdown, markdown, table_markdown


def test_a_table():
    assert table_markdown(made_reports.fruit()).splitlines() == [
        "| fruit | eaten | Δ_taste | note |",
        "| --- | ---: | ---: | ---: |",
        "| apple & pear | 12,345 | 0.5000 [0.2500, 0.7500] |  |",
        "| 50 %_\\|off\\| plums | 3 | – | † |",
        "| – | 0 | -0.1250 [-0.5000, nan] |  |",
    ]


def test_without_rows():
    empty = made_reports.fruit((), empty="None was eaten.")
    assert table_markdown(empty) == "None was eaten."
    assert len(grid_markdown(empty).splitlines()) == 2


def test_a_report():
    text = markdown(made_reports.report(made_reports.fruit()))
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == [
        "# Adaptation opportunity: fruit <1>",
        "## How much?",
        "## Notes",
        "## Tables",
        "### What was eaten",
        "## Configuration",
    ]
    assert "- † not ripe\n\nBrackets: 95 % percentile intervals from 2,000 resamples of prompts.\n" in text
    assert text.endswith("unmask 1, numpy 2\n")


def test_what_is_too_long_for_a_page_is_left_out():
    assert "What was eaten" not in markdown(made_reports.report(made_reports.fruit(aside=True)))
