"""The paper's numbers beside ours: only of the same checkpoint, task and axis."""

from dataclasses import replace

import pytest

from tests.helpers.made_findings import rows
from unmask.report.study import study_report, write
from unmask.report.tables.beside_paper import beside_paper, beside_paper_sheet

TASK = "constrained-json-fill"


def as_model(findings, source, **options):
    """The same findings, of a task and of a model that the paper has."""
    manifest = findings.opportunity.manifest
    (spec,) = manifest["study"]["models"]
    models = [spec | {"model": source, "options": options}]

    def renamed(part):
        cells = tuple(replace(c, task=TASK) if c.task == "find" else c for c in part.cells)
        return replace(part, cells=cells)

    opportunity = replace(
        renamed(findings.opportunity), manifest=manifest | {"study": manifest["study"] | {"models": models}}
    )
    return replace(
        findings,
        opportunity=opportunity,
        detection=renamed(findings.detection),
        end_to_end=renamed(findings.end_to_end),
    )


@pytest.mark.parametrize(
    ("source", "options"),
    [("llada", {}), ("GSAI-ML/LLaDA-8B-Instruct", {}), ("llada", {"path": "GSAI-ML/LLaDA-8B-Instruct"})],
)
def test_numbers_of_the_same_setting(whole, source, options):
    findings = as_model(whole, source, **options)
    shown = {(row["task"], row["quantity"], row["line"]): row for row in rows(beside_paper_sheet(findings))}
    detected = next(c for c in findings.detection.cells if c.task == TASK).raw.measures
    decoded = next(c for c in findings.end_to_end.cells if (c.task, c.axis) == (TASK, "region"))
    for quantity, line, paper, ours in (
        ("auroc", "447", "0.854", detected["auroc"]),
        ("captured_10", "447", "0.569", detected["captured", 0.1]),
        ("lift_20", "479", "0.0594", detected["ranked_lift", 0.2]),
        ("concentration_5", "417", "0.627", detected["concentration", 0.05]),
        ("oracle_lift_10", "498", "0.0625", detected["oracle_lift", 0.1]),
        ("selective", "3826", "0.0", decoded.utility["selective"]),
        ("delta", "3826", "0.0", decoded.difference["selective", "fixed"]),
    ):
        row = shown[TASK, quantity, line]
        assert (row["paper"], row["ours"]) == (paper, repr(ours.value)), quantity
    assert shown[TASK, "coverage", "3826"]["ours"] == repr(decoded.coverage["selective"])
    assert shown["macro", "selective", "3836"]["paper"] == "0.424"
    assert {task for task, _, _ in shown} == {TASK, "macro"}
    assert {row["axis"] for row in shown.values()} == {"region", "chosen"}


@pytest.mark.parametrize(("source", "options"), [("mini", {}), ("llada", {"path": "folder/llada"}), ("x/llada", {})])
def test_another_checkpoint_has_none_whatever_its_name(whole, source, options):
    findings = as_model(whole, source, **options)
    assert not list(beside_paper(findings))
    assert "Beside the paper" not in [section.title for section in study_report(findings).sections]


def test_it_is_a_table_of_the_report_in_every_form(whole, tmp_path):
    written = write(study_report(as_model(whole, "llada")), tmp_path)
    assert {"paper.csv", "paper.tex"} <= {path.name for path in written.paths}
    assert {path.stem for path in written.tables} == {path.stem for path in written.latex}
    assert "Beside the paper" in written.text.read_text(encoding="utf-8")
