"""A study of the policy axis: its file, what is refused, and a run from the file to the report."""

import json
from dataclasses import replace

import pyarrow.compute as pc
import pytest

from tests.helpers.cases import each_case
from tests.helpers.method_studies import NAMES, raw, spell_and_score_by_hash
from tests.helpers.own_policies import GOOD
from tests.helpers.paths import ROOT
from tests.helpers.tiny_studies import table
from unmask.axes import POLICY
from unmask.base.errors import ConfigError, UnknownName
from unmask.cli.app import main
from unmask.core import Search
from unmask.lab.analysis import analyse
from unmask.lab.store import Store
from unmask.lab.study import StudyConfig, prompts
from unmask.lab.study.config import load_methods
from unmask.lab.study.forecast import forecast, uncounted_methods
from unmask.lab.study.prompts import load_examples
from unmask.lab.study.protocol import run_study
from unmask.lab.study.validation import why_not_cross_fitted
from unmask.methods import DUS, KLASS, METHODS, WINO, InfoGain, fixed_action, make_policy


class TestTheFile:
    def test_candidates_are_those_of_the_command_line(self, methods_study):
        named = methods_study.candidate_sets("llada")[POLICY]
        assert list(named) == NAMES
        assert named["llada"] == fixed_action()
        assert named[NAMES[1]] == KLASS(window=1, threshold=0.0)
        assert named[NAMES[2]] == WINO(block_length=4)
        assert named[NAMES[3]] == InfoGain(threshold=None, candidates=3)
        assert named["dus"] == DUS()

    def test_reference_stands_for_that_of_each_model(self):
        both = [{"model": "a", "reference": "llada"}, {"model": "b", "reference": "dream"}]
        made = StudyConfig.parse(raw(models=both, candidates={"policy": ["reference", "klass", "llada", "dream"]}))
        for kind in ("llada", "dream"):
            first = made.candidate_sets(kind)[POLICY]["reference"]
            assert first == made.branch_plan(kind).reference
        with pytest.raises(ConfigError, match=r"first candidate of policy is 'llada'.*'dream', the reference"):
            StudyConfig.parse(raw(models=both))

    def test_a_method_as_the_reference_has_its_own_name(self):
        model = [{"model": "a", "reference": "klass", "settings": {"window": 1}}]
        made = StudyConfig.parse(raw(models=model, candidates={"policy": ["klass", "llada"]}))
        assert made.candidate_sets(made.models[0].reference)[POLICY]["klass"] == KLASS(window=1)

    @pytest.mark.parametrize(
        ("name", "settings"),
        [
            ("dus", {"leave_skipped": True}),
            ("remdm", {}),
            ("core", {}),
            ("info-gain", {}),
            ("vsb", {}),
            ("wino", {}),
            ("remdm-llada", {}),
        ],
    )
    def test_a_reference_may_do_as_it_likes_where_nothing_is_cut_out_of_it(self, name, settings):
        model = [{"model": "a", "reference": name, "settings": settings}]
        made = StudyConfig.parse(raw(models=model, candidates={"policy": [name, "llada"]}))
        assert made.branch_plan(made.models[0].reference).reference == make_policy(name, **settings)
        with pytest.raises(ConfigError, match="cannot continue branches"):
            StudyConfig.parse(raw(models=model, axes=["policy", "score"], candidates={"policy": [name, "llada"]}))

    def test_a_class_of_ones_own(self, tmp_path):
        (tmp_path / "mine.py").write_text(GOOD, encoding="utf-8")
        made = StudyConfig.parse(raw(candidates={"policy": ["llada", "mine.py:Counted:count=3"]}), tmp_path)
        assert made.candidate_sets("llada")[POLICY]["mine.py:Counted:count=3"].count == 3
        assert "code" in made.config["methods"]["mine.py:Counted:count=3"]["settings"]["class"]

    def test_the_config_holds_what_tables_depend_on(self, methods_study):
        about = methods_study.config["methods"]
        assert about[NAMES[3]]["settings"]["candidates"] == 3
        assert (about[NAMES[3]]["draws"], about["dus"]["draws"]) == (True, False)
        assert about[NAMES[3]]["version"] == METHODS["info-gain"].version
        assert "methods" not in StudyConfig.parse(table()).config

    def test_the_example_is_a_study_of_both_small_models(self):
        made = StudyConfig.read(ROOT / "studies" / "methods.toml")
        sets = [made.candidate_sets(spec.reference)[POLICY] for spec in made.models]
        assert [list(one) for one in sets] == [list(made.candidates[POLICY])] * 2
        assert not any(policy.needs.shadows for one in sets for policy in one.values())

    @each_case(
        ("changes", "said"),
        [
            ({"candidates": ...}, "the axis 'policy' has no candidates"),
            ({"candidates": {"policy": ["llada"]}}, "the reference, then one method or more"),
            ({"candidates": {"policy": ["klass", "llada"]}}, "first candidate of policy is 'klass'"),
            ({"candidates": {"policy": ["llada", "reference"]}}, "'reference' in a later place"),
            ({"candidates": {"policy": ["llada", "clas"]}}, "klass"),
            ({"candidates": {"policy": ["llada", "klass:window=0"]}}, "window"),
            ({"candidates": {"policy": ["llada", "klass:8"]}}, "candidates.policy 'klass:8': '8' is not KEY=VALUE"),
            ({"candidates": {"policy": ["llada", "p2:planner=true"]}}, "asks a planner network"),
            ({"diagnostics": ["policy"]}, "no diagnostic exists for the policy axis"),
            ({"diagnostics": ["score"]}, "one of the study's axes: policy"),
            ({"end_to_end": True}, "true with diagnostics"),
            (
                {
                    "models__0__reference": "info-gain",
                    "candidates": {"policy": ["reference", "llada"]},
                    "rollouts": 1,
                },
                "rollouts is 1; allowed: 2 or more where the reference",
            ),
            ({"models__0__reference": "p2", "models__0__settings": {"planner": True}}, "cannot continue branches"),
            ({"models__0__reference": "soar"}, "cannot continue branches"),
            ({"candidates": {"policy": ["llada", "lookum:paths=2"]}}, "is a search, which owns its loop"),
            ({"candidates": {"policy": ["llada", "medal"]}}, "is a search, which owns its loop"),
        ],
    )
    def test_what_is_refused(self, changes, said):
        with pytest.raises((ConfigError, UnknownName), match=said.replace("(", r"\(")):
            StudyConfig.parse(raw(**changes))

    def test_searches_are_refused(self, monkeypatch, tmp_path):
        class Beam(Search):
            name = "beam"

            def decode(self, run, traj):
                return traj

        monkeypatch.setitem(METHODS, "beam", Beam)
        monkeypatch.setattr("unmask.methods.registry.make_policy", lambda name, **settings: Beam())
        with pytest.raises(ConfigError, match="'beam' is a search, which owns its loop"):
            load_methods(["llada", "beam"], tmp_path)


class TestTheRun:
    def test_extra_forwards_are_stored_with_each_branch(self, methods_run):
        branches = methods_run.read_arrow("branches").to_pylist()
        of = {name: [row for row in branches if row["candidate"] == name] for name in NAMES}
        assert all(row["axis"] == POLICY for row in branches)
        assert all((row["extra_forwards"], row["extra_tokens"]) == (0, 0) for row in of["llada"] + of["dus"])
        assert {row["extra_forwards"] for row in of[NAMES[2]]} == {0}
        assert {row["extra_tokens"] for row in of[NAMES[2]]} == {4}
        assert {row["is_reference"] for row in of["llada"]} == {True}
        # Up to three sets of positions are looked at, none on a step that fills the answer.
        assert {row["extra_forwards"] for row in of[NAMES[3]]} <= {0, 2, 3}
        assert any(row["extra_forwards"] for row in of[NAMES[3]])

    def test_other_studies_have_no_such_columns(self, tiny_run):
        assert "extra_forwards" not in tiny_run.read_arrow("branches").column_names

    def test_interrupted_naive_and_cut_otherwise_it_is_the_same(
        self, methods_study, methods_run, tiny_load, tmp_path, monkeypatch
    ):
        spell_and_score_by_hash(monkeypatch)
        scored = prompts.score_texts
        wanted = methods_run.content_hash()
        store, answered = Store.create(tmp_path / "again", methods_study.config), 0

        def dies(pairs, *rest):
            nonlocal answered
            answered += 1
            if answered == 3:
                raise KeyboardInterrupt
            return scored(pairs, *rest)

        monkeypatch.setattr(prompts, "score_texts", dies)
        with pytest.raises(KeyboardInterrupt):
            run_study(methods_study, store, tiny_load)
        assert 0 < len(store.names()) < 3
        assert (
            run_study(methods_study, Store.create(tmp_path / "again", methods_study.config), tiny_load).hashes == wanted
        )
        other = replace(methods_study, shard=3)
        naive = run_study(other, Store.create(tmp_path / "naive", other.config), tiny_load, naive=True)
        assert naive.hashes["branches"] == wanted["branches"]

    def test_what_it_will_take(self, methods_study, tiny_model):
        tasks, _ = load_examples(methods_study)
        (row,) = forecast(methods_study, tasks).to_dict("records")
        assert uncounted_methods(methods_study) == [NAMES[3]]
        assert row["branches"] == row["states"] * len(NAMES) * methods_study.rollouts
        without = replace(
            methods_study,
            candidates={POLICY: tuple(n for n in NAMES if n != NAMES[2])},
            methods={n: policy for n, policy in methods_study.methods.items() if n != NAMES[2]},
        )
        (less,) = forecast(without, tasks).to_dict("records")
        # A branch of its own, and its longer view, at every state.
        assert row["forwards"] - less["forwards"] >= row["states"]

    @pytest.mark.parametrize(("reference", "tokens"), [("core", 0), ("wino", 4)])
    def test_a_reference_that_looks_ahead_or_reads_more(
        self, reference, tokens, tiny_folder, tiny_model, tiny_load, tmp_path, monkeypatch
    ):
        """From the file to the report, merged and naive."""
        options = {"core": {"revise_every": 1, "tail": 0, "window": [0.0, 1.0]}, "wino": {"block_length": 4}}
        model = {"model": str(tiny_folder), "name": "tiny", "reference": reference, "settings": options[reference]}
        candidates = {"policy": ["reference", "llada", "info-gain:threshold=none,candidates=3"]}
        study = StudyConfig.parse(raw(models=[model], candidates=candidates))
        assert ("reference (the reference, at every step)" in uncounted_methods(study)) == (reference == "core")
        spell_and_score_by_hash(monkeypatch)
        store = Store.create(tmp_path / "out", study.config)
        done = run_study(study, store, tiny_load)
        assert done.complete
        branches = store.read_arrow("branches").to_pylist()
        own = [row for row in branches if row["is_reference"]]
        assert {row["extra_tokens"] for row in own if not row["extra_forwards"]} == {tokens}
        assert any(row["extra_forwards"] for row in own) == (reference == "core")
        naive = run_study(study, Store.create(tmp_path / "naive", study.config), tiny_load, naive=True)
        assert naive.hashes["branches"] == done.hashes["branches"]
        assert main(["study", "report", str(store.folder), "--out", str(tmp_path / "report")]) == 0
        assert "llada" in (tmp_path / "report" / "methods-cost.csv").read_text(encoding="utf-8")

    def test_the_report_has_it(self, methods_run, tmp_path, capsys):
        assert main(["study", "report", str(methods_run.folder), "--out", str(tmp_path)]) == 0
        page = (tmp_path / "report.md").read_text(encoding="utf-8")
        assert "Whole methods, one transition" in page
        assert "The policy axis has no diagnostic" in page
        assert "Not asked by this study." in page
        assert "info-gain" in (tmp_path / "methods-cost.csv").read_text(encoding="utf-8")
        assert "policy" in (tmp_path / "opportunity.csv").read_text(encoding="utf-8")
        assert "policy" in capsys.readouterr().out
        found = analyse(methods_run, resamples=20, draws=2)
        assert set(found.frame["experiment"]) == {"opportunity", "methods"}
        assert set(found.select("opportunity", measure="fixed")["axis"]) == {POLICY}
        assert {name for one in found.study.utilities.values() for name in one.candidates} == set(NAMES)

    def test_one_rollout_of_a_method_that_draws_is_not_cross_fitted(self, methods_run):
        config = json.loads(json.dumps(methods_run.manifest["study"]))
        assert why_not_cross_fitted({**config, "rollouts": 1}, POLICY)
        calm = {name: {**about, "draws": False} for name, about in config["methods"].items()}
        assert not why_not_cross_fitted({**config, "rollouts": 1, "methods": calm}, POLICY)
        assert pc.count(methods_run.read_arrow("branches")["utility"]).as_py() > 0
