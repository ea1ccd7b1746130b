"""Study files: what is read, and what is refused with the values that are allowed."""

import json

import pytest

from tests.helpers import own_tasks
from tests.helpers.cases import each_case
from tests.helpers.own_policies import GOOD
from tests.helpers.own_tasks import parsed
from tests.helpers.paths import STUDIES
from tests.helpers.tiny_studies import table
from unmask.adapt.diagnostics import DIAGNOSTICS
from unmask.axes import cardinality
from unmask.base.errors import ConfigError
from unmask.lab.store import Store
from unmask.lab.study import StudyConfig
from unmask.lab.study.protocol import run_study
from unmask.methods import Composed, Dream, FastDLLM, fixed_action

WITHOUT = {"axes": ["score"], "diagnostics": ["score"], "revision": ...}
"""Changes to a study after which no axis of it revises."""


class TestFiles:
    def test_a_whole_one(self):
        study = StudyConfig.parse(table())
        assert study.steps == {"csv-missing-cells": 4}
        assert list(study.candidate_sets("llada")["score"]) == ["confidence", "margin", "stability"]
        assert list(study.candidate_sets("llada")["commitment"]) == ["all", "none", "confidence:0.9", "margin:0.5"]
        plan = study.branch_plan("llada")
        assert plan.reference == fixed_action()
        assert plan.continuation("score").policy == fixed_action()
        assert plan.continuation("commitment").policy.operator is not None

    @each_case("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
    def test_the_ones_that_come_with_it(self, path):
        study = StudyConfig.read(path)
        assert study.states == (4 if path.stem == "demo" else 8)
        assert study.rollouts == 4
        assert json.dumps(study.config)

    def test_below_k_min_names_the_bare_counts_and_changes_nothing_else(self):
        counts = {"axes": ["score", "cardinality"], "diagnostics": ["score"], "revision": ...}
        usual, bare = (StudyConfig.parse(table(**counts | more)) for more in ({}, {"below_k_min": True}))
        assert usual.config == StudyConfig.parse(table(**counts, below_k_min=False)).config
        assert list(bare.candidate_sets("llada")["cardinality"])[:2] == ["schedule", "count:1:below"]
        native = StudyConfig.parse(table(**counts, below_k_min=True, candidates=...)).candidate_sets("dream")[
            "cardinality"
        ]
        assert native["share:1.0:below"] == Composed(Dream(), score="certainty", cardinality="share:1.0:below")
        names = {axis: list(named) for axis, named in usual.candidate_sets("llada").items()}
        names["cardinality"] = [cardinality.allow_below_k_min(name) for name in names["cardinality"]]
        assert bare.config == usual.config | {"candidates": {"llada": names}}
        assert bare.candidate_sets("llada")["score"] == usual.candidate_sets("llada")["score"]
        both = ["schedule", "count:1", "count:1:below"]
        study = StudyConfig.parse(table(**counts, candidates__cardinality=both))
        assert list(study.candidate_sets("llada")["cardinality"]) == both

    def test_scoring_is_part_of_the_study_where_it_is_the_papers(self):
        ours, paper = StudyConfig.parse(table(scoring="ours")), StudyConfig.parse(table(scoring="paper"))
        assert ours.config == StudyConfig.parse(table()).config
        assert paper.config == ours.config | {"scoring": "paper"}
        with pytest.raises(ConfigError, match="scoring is 'theirs'; allowed: ours or paper"):
            StudyConfig.parse(table(scoring="theirs"))

    def test_a_policy_of_ones_own_as_reference(self, tmp_path):
        """Its file is looked for beside the study's; its settings and its code are part of the configuration."""
        (tmp_path / "mine.py").write_text(GOOD, encoding="utf-8")
        own = {"models__0__reference": "mine.py:Counted", "models__0__settings": {"count": 3}, "candidates": ...}
        study = StudyConfig.parse(table(**own), tmp_path)
        (spec,) = study.models
        assert spec.policy["count"] == 3
        assert "code " in spec.policy["class"]
        sets = study.candidate_sets(spec.reference)
        assert all(next(iter(named)) == "own" for named in sets.values())
        assert study.branch_plan(spec.reference).reference.name == "counted"
        (tmp_path / "mine.py").write_text(GOOD + "# changed\n", encoding="utf-8")
        assert StudyConfig.parse(table(**own), tmp_path).config != study.config

    def test_a_method_by_name_as_reference(self):
        by_name = {"models__0__reference": "fast-dllm", "models__0__settings": {"block_length": 4}, "candidates": ...}
        study = StudyConfig.parse(table(**by_name))
        assert study.branch_plan(study.models[0].reference).reference == FastDLLM(block_length=4)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"models__0__reference": "lada"}, "did you mean llada"),
            (
                {"models__0__reference": "wino"},
                "the reference is 'wino'; allowed: a policy that decides from",
            ),
            ({"models__0__reference": "none.py:Mine"}, "cannot be read"),
            ({"models__0__settings": {"x": 1}}, "unknown setting of llada 'x'"),
        ],
    )
    def test_references_that_are_refused(self, changes, message):
        with pytest.raises(ConfigError, match=message):
            StudyConfig.parse(table(**changes))

    @each_case("key", ["seed", "states", "rollouts", "temperature", "revision", "splits", "tasks", "axes"])
    def test_what_alters_a_conclusion_has_no_default(self, key):
        with pytest.raises(ConfigError, match=f"no '{key}'.*allowed"):
            StudyConfig.parse(table(**{key: ...}))

    @each_case(
        ("changes", "message"),
        [
            ({"rollout": 4}, "did you mean rollouts"),
            ({"axes": ["scores"]}, "did you mean score"),
            ({"tasks": ["csv-missing-cell"]}, "did you mean csv-missing-cells"),
            ({"tasks": []}, "a list of names"),
            ({"tasks": ["carry-rtl", "carry-rtl"]}, "none twice"),
            ({"seed": -1}, "0 or more"),
            ({"seed": True}, "whole number"),
            ({"states": 0}, "1 or more"),
            ({"rollouts": 2.5}, "whole number"),
            ({"temperature": -0.1}, "0 or more"),
            ({"temperature": "0"}, "a number"),
            ({"models": []}, "one .*or more"),
            ({"models__0__reference": "lada"}, "did you mean llada"),
            ({"models__0__reference": ...}, r"no 'models\[0\]\.reference'"),
            ({"models__0__dtype": "fp32"}, "known: model, name"),
            ({"splits__validation": 1}, "2 or more"),
            ({"splits__evaluation": 0}, "1 or more"),
            ({"splits__test": 5}, "unknown key of splits"),
            ({"splits__evaluation": {"from": "validation", "start": 2, "prompts": 5}}, "in one of them only"),
            ({"splits__evaluation": {"from": "evaluatoin", "prompts": 5}}, "did you mean evaluation"),
            ({"steps__share": 0}, "above 0"),
            ({"steps__tasks": {"carry-rtl": 4}}, "unknown task of steps.tasks"),
            ({"steps__tasks": {"csv-missing-cells": 17}}, "1 to 16, its horizon; lower it"),
            ({"steps__tasks": {"csv-missing-cells": 0}}, "1 to 16, its horizon; give 1 or more"),
            ({"steps__tasks": {"csv-missing-cells": -3}}, "1 to 16, its horizon; give 1 or more"),
            ({"steps__tasks": {"csv-missing-cells": "8"}}, "a whole number, 1 to 16"),
            ({"revision__variant": "caps"}, "did you mean cap"),
            ({"revision__rate": 0.1}, "unknown key of revision"),
            ({"revision__eta": "much"}, "eta of revision"),
            ({"candidates__region": ["full"]}, "unknown axis of candidates"),
            ({"candidates__score": ["margin", "confidence"]}, "put it first"),
            ({"candidates__score": ["confidence", "marign"]}, "did you mean margin"),
            ({"engine__rows": 0}, "1 or more"),
            ({"engine__bucket": 33}, "multiple of 32"),
            ({"engine__row": 3}, "did you mean rows"),
            ({"budget": {"hours": 3}}, "known: minutes"),
        ],
    )
    def test_refusals_name_what_is_allowed(self, changes, message):
        with pytest.raises(ConfigError, match=message):
            StudyConfig.parse(table(**changes))

    def test_files_that_are_none(self, tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            StudyConfig.read(tmp_path / "none.toml")
        (tmp_path / "bad.toml").write_text("name = ")
        with pytest.raises(ConfigError, match="not TOML"):
            StudyConfig.read(tmp_path / "bad.toml")

    @each_case(
        ("changes", "words"),
        [
            ({"seed": ...}, "study file 'mine.toml' has no 'seed'; allowed"),
            ({"splits__evaluation": ...}, "study file 'mine.toml' has no 'splits.evaluation'"),
            ({"models__0__reference": ...}, r"study file 'mine.toml' has no 'models\[0\].reference'"),
            ({"seed": -1}, "seed of study file 'mine.toml' is -1"),
            ({"engine__row": 3}, "unknown key of engine of study file 'mine.toml'"),
        ],
    )
    def test_messages_name_the_file_and_the_table(self, changes, words):
        with pytest.raises(ConfigError, match=words):
            StudyConfig.parse(table(**changes), where="study file 'mine.toml'")

    def test_a_key_given_twice_is_named_with_its_line(self, tmp_path):
        (tmp_path / "twice.toml").write_text("name = 'a'\nseed = 1\nseed = 2\n")
        with pytest.raises(ConfigError, match=r"not TOML \(Cannot overwrite a value \(at line 3.*correct that line"):
            StudyConfig.read(tmp_path / "twice.toml")

    @pytest.mark.parametrize("name", ["x" * 201, "a\nb", "a\0b", "\x1b[31mred"], ids=["long", "line", "nul", "colour"])
    def test_names_that_no_file_or_screen_holds(self, name, prompt_file):
        for changes in ({"name": name}, {"models__0__name": name}, {"models__0__model": name, "models__0__name": ...}):
            with pytest.raises(ConfigError, match="without control characters") as refused:
                StudyConfig.parse(table(**changes))
            assert len(str(refused.value)) < 400
        with pytest.raises(ConfigError, match="name of an own task"):
            parsed(prompt_file.parent, tasks=[name], own={name: {"prompts": "mine.jsonl", "horizon": 6}})

    @pytest.mark.parametrize("name", ["模型", "é", "Ω 7B (β)", "x" * 200])
    def test_names_of_any_script(self, name):
        assert StudyConfig.parse(table(models__0__name=name)).models[0].name == name

    @pytest.mark.parametrize("path", ["x" * 5000, "a\0b"], ids=["long", "nul"])
    def test_paths_that_are_none(self, path):
        with pytest.raises(ConfigError, match="check"):
            StudyConfig.read(path)

    def test_stretches_of_one_split_may_meet_but_not_overlap(self):
        StudyConfig.parse(table(splits__evaluation={"from": "validation", "start": 3, "prompts": 5}))


class TestRevision:
    """The operator has a meaning where an axis revises, and is asked for there."""

    def test_may_be_left_out_where_no_axis_revises(self):
        study = StudyConfig.parse(table(**WITHOUT))
        assert study.revision is None
        assert study.config["revision"] is None
        assert study.branch_plan("llada").continuation("score").policy == fixed_action()

    def test_is_asked_for_where_one_does(self):
        with pytest.raises(ConfigError, match="no 'revision'"):
            StudyConfig.parse(table(revision=...))

    def test_a_study_without_it_runs(self, tiny_folder, tiny_load, tmp_path):
        study = StudyConfig.parse(table(models__0__model=str(tiny_folder), states=1, **WITHOUT, end_to_end=True))
        store = Store.create(tmp_path / "out", study.config)
        assert run_study(study, store, tiny_load).complete


class TestDiagnostics:
    def test_one_of_an_axis_that_is_not_studied(self):
        words = r"the axis of 'region' in diagnostics is 'region'; allowed: one of the study's axes: score, commitment"
        with pytest.raises(ConfigError, match=words):
            StudyConfig.parse(table(diagnostics=["region"]))
        with pytest.raises(ConfigError, match=r"unknown name in diagnostics 'scor'; did you mean score"):
            StudyConfig.parse(table(diagnostics=["scor"]))

    def test_several_of_one_axis(self):
        names = ("region", "region:diagnosed", "region:share")
        study = StudyConfig.parse(table(axes=["region"], candidates={}, diagnostics=list(names)))
        assert study.diagnostics == names
        assert study.diagnosed_axes == ("region",) * 3
        plan = study.branch_plan("llada")
        assert plan.diagnostics == {name: DIAGNOSTICS[name] for name in names}
        assert [one.diagnostic for one in plan.alternatives if one.diagnostic] == list(names)

    def test_the_region_axis_may_hold_the_share(self):
        """Names of candidates and diagnostics say it; nothing else of the study changes."""
        given = {"axes": ["score", "region"], "diagnostics": ["score", "region"]}
        given["candidates"] = {"region": ["full", "block:8", "window:16"]}
        count, share = (StudyConfig.parse(table(**given, region_holds=holds)) for holds in ("count", "share"))
        assert count.config == StudyConfig.parse(table(**given)).config
        assert share.diagnostics == ("score", "region:share")
        assert list(share.candidate_sets("llada")["region"]) == ["full", "block:8:share", "window:16:share"]
        for one, other in ((share.config, count.config), (count.config, share.config)):
            assert {key for key in one if one[key] != other[key]} == {"candidates", "diagnostics"}
        assert share.candidate_sets("llada")["score"] == count.candidate_sets("llada")["score"]
        already = {
            **given,
            "candidates": {"region": ["full", "block:8:share"]},
            "diagnostics": ["region:share", "region"],
        }
        again = StudyConfig.parse(table(**already, region_holds="share"))
        assert list(again.candidate_sets("llada")["region"]) == ["full", "block:8:share"]
        assert again.diagnostics == ("region:share",)

    @pytest.mark.parametrize(("axes", "value"), [(["region"], "half"), (["region"], 1), (["score"], "share")])
    def test_what_the_region_axis_cannot_hold(self, axes, value):
        with pytest.raises(ConfigError, match=r"region_holds (of the study file )?is"):
            StudyConfig.parse(table(axes=axes, candidates={}, diagnostics=..., region_holds=value))

    def test_what_was_stored_before_there_were_several_stays(self):
        """Settings of the four that are called as their axes: another key would make another study of every old one."""
        axes = ["score", "region", "cardinality"]
        config = StudyConfig.parse(table(axes=axes, candidates={}, diagnostics=axes)).config
        assert config["diagnostics"] == {
            "score": {"pairs": 256, "ridge": 0.001},
            "region": {"budget": 0.5},
            "cardinality": {"epsilon": 0.001},
        }
        assert "renamed" not in config

    def test_a_learned_detector_is_part_of_the_study_where_it_is_asked_for(self):
        plain, asked = StudyConfig.parse(table(learned=False)), StudyConfig.parse(table(learned=True))
        assert plain.config == StudyConfig.parse(table()).config
        assert asked.config == plain.config | {"learned": True}
        assert not plain.branch_plan("llada").summaries
        assert asked.branch_plan("llada").summaries
        with pytest.raises(ConfigError, match="learned is True; allowed: true with diagnostics; name diagnostics"):
            StudyConfig.parse(table(learned=True, diagnostics=...))
        with pytest.raises(ConfigError, match="learned of the study file is 'yes'; allowed: true or false"):
            StudyConfig.parse(table(learned="yes"))

    def test_settings_are_part_of_the_study(self):
        study = StudyConfig.parse(table(diagnostics=["score"]))
        assert list(study.branch_plan("llada").diagnostics) == ["score"]
        assert study.config["diagnostics"]["score"]["pairs"] == 256
        assert StudyConfig.parse(table(diagnostics=...)).branch_plan("llada").diagnostics == {}
        assert StudyConfig.parse(table(diagnostics=...)).config != study.config

    @pytest.mark.parametrize("value", [["region"], ["scor"], "score", ["score", "score"]])
    def test_refused(self, value):
        with pytest.raises(ConfigError, match="diagnostics"):
            StudyConfig.parse(table(diagnostics=value))


class TestOwnTasks:
    def test_a_file_is_looked_for_beside_the_study(self, prompt_file, monkeypatch):
        (prompt_file.parent / "study.toml").write_text(own_tasks.TEXT, encoding="utf-8")
        monkeypatch.chdir("/")
        assert StudyConfig.read(prompt_file.parent / "study.toml").own["mine"].counts["validation"] == 4

    def test_a_study_without_one_has_the_configuration_it_always_had(self, prompt_file):
        assert "own" not in parsed(prompt_file.parent, tasks=["carry-rtl"], own=...).config

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"own__mine__prompts": "none.jsonl"}, "cannot be read"),
            ({"own__mine__prompt": "x"}, "did you mean prompts"),
            ({"own__mine__horizon": ...}, "max_new_tokens of mine is None"),
            ({"own__mine__score": "exakt"}, "did you mean exact"),
            ({"own__mine__score": 3}, "own.mine.score of the study file is 3"),
            ({"own": {"other": {}}}, "no 'own.other.prompts'"),
            ({"tasks": ["carry-rtl"]}, "own.mine is not among the tasks"),
            ({"tasks": ["mine", "mien"]}, "did you mean mine"),
            ({"own__mine": 3}, "own.mine of the study file is 3"),
        ],
    )
    def test_refused(self, prompt_file, changes, message):
        with pytest.raises(ConfigError, match=message):
            parsed(prompt_file.parent, **changes)
