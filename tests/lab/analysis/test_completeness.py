"""Studies that are not complete: what is missing is named, and what nothing can be said about is refused."""

import json

import pytest

from tests.helpers import made_studies as made
from unmask.base.errors import SchemaError
from unmask.lab.analysis.opportunity import measure
from unmask.lab.store.manifest import write_manifest


def cell(findings, task, axis, model="small"):
    (one,) = [c for c in findings.cells if (c.model, c.task, c.axis) == (model, task, axis)]
    return one


class TestIncomplete:
    def test_tasks_and_models_that_are_not_there_yet(self, tmp_path):
        tables = made.known()
        lost = ("small", "sort", "evaluation")
        del tables[lost]
        place = made.store(
            tmp_path / "s",
            tables,
            models={"small": "small", "later": "later"},
            unfinished=[lost],
            unavailable={"gsm8k": "no file gsm8k.jsonl"},
        )
        findings = measure(place)
        assert not findings.complete
        assert {c.task for c in findings.cells} == {"fill"}
        why = {(m.model, m.task): m.reason for m in findings.missing}
        assert why == {
            ("small", "sort"): "no evaluation prompt is finished yet",
            ("small", "gsm8k"): "no file gsm8k.jsonl",
            ("later", "fill"): "no validation prompt is finished yet",
            ("later", "sort"): "no validation prompt is finished yet",
            ("later", "gsm8k"): "no file gsm8k.jsonl",
        }
        extents = {(e.model, e.task, e.split): e for e in findings.extents}
        assert extents["small", "sort", "evaluation"].planned == 1
        assert extents["small", "sort", "evaluation"].shards == 0
        assert extents["later", "fill", "validation"].planned is None
        assert ("small", "gsm8k", "validation") not in extents

    def test_part_of_a_task_is_marked(self, tmp_path):
        place = made.store(tmp_path / "s", made.known())
        manifest = place.manifest
        later = {"task": "fill", "split": "evaluation", "block": 1, "prompts": 1}
        manifest["models"]["small"]["shards"]["small.fill.evaluation.0001.beef"] = later
        write_manifest(place.files, manifest)
        findings = measure(place)
        assert cell(findings, "fill", "score").partial == "1 of 2 evaluation shards"
        assert cell(findings, "sort", "score").partial == ""
        assert not findings.complete

    def test_a_model_without_room_for_any_prompt(self, tmp_path):
        tables = made.known()
        del tables["small", "sort", "validation"], tables["small", "sort", "evaluation"]
        place = made.store(tmp_path / "s", tables, unavailable={"sort": "later"})
        manifest = place.manifest
        manifest["tasks"]["sort"] = {"data": "d", "version": "1"}
        write_manifest(place.files, manifest)
        findings = measure(place)
        assert {m.reason for m in findings.missing} == {"no validation prompt fits into the model"}
        assert findings.complete


@pytest.mark.parametrize(("split", "other"), [("evaluation", "validation"), ("validation", "evaluation")])
def test_half_a_study_says_what_is_missing(tmp_path, split, other):
    """Interrupted before its other half began: no numbers, but every reason."""
    tables = made.known()
    lost = [key for key in tables if key[2] != split]
    findings = measure(made.store(tmp_path / "s", {k: v for k, v in tables.items() if k not in lost}, unfinished=lost))
    assert findings.cells == ()
    assert {m.reason for m in findings.missing} == {f"no {other} prompt is finished yet"}
    assert len(findings.missing) == 6
    assert not findings.complete


class TestRefusals:
    def test_nothing_finished(self, tmp_path):
        place = made.store(tmp_path / "s", {}, unfinished=[("small", "fill", "evaluation")])
        with pytest.raises(SchemaError, match=r"'made'.*0 finished shards; allowed.*unmask study run"):
            measure(place)

    def test_a_shard_of_another_version(self, tmp_path):
        place = made.store(tmp_path / "s", made.known())
        path = (place.folder / "shards") / place.names()[0] / "shard.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "format": "unmask-study-0"}))
        with pytest.raises(SchemaError, match=r"'unmask-study-0'; allowed: 'unmask-study-3'.*unmask study check"):
            measure(place)
        path.write_text("{")
        with pytest.raises(SchemaError, match="unmask study run FILE --out"):
            measure(place)

    @pytest.mark.parametrize(("part", "name"), [("study", "seed"), ("models", None)])
    def test_a_manifest_that_lacks_something(self, tmp_path, part, name):
        place = made.store(tmp_path / "s", made.known())
        manifest = place.manifest
        if name is None:
            del manifest[part]
        else:
            del manifest[part][name]
        write_manifest(place.files, manifest)
        with pytest.raises(SchemaError, match=f"has no {part if name is None else f'{part}.{name}'}; allowed"):
            measure(place)
