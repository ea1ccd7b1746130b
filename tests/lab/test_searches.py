"""Searches of a study: what its file may name, what is decoded beside them, and what is reported."""

from statistics import fmean

import pyarrow.compute as pc
import pytest

from tests.helpers.findings import fact
from tests.helpers.made_gates import known_gates
from tests.helpers.tiny_studies import SMALL, by_hash
from tests.lab.study.test_arms import RAW
from unmask.api.load import load
from unmask.base.errors import ConfigError, OtherStudy
from unmask.lab.analysis import analyse
from unmask.lab.store import Store
from unmask.lab.study import StudyConfig, prompts
from unmask.lab.study.forecast import uncounted_methods
from unmask.lab.study.protocol import run_study
from unmask.lab.study.validation import SEARCH
from unmask.methods import LookUM
from unmask.report.study import study_report

TASK = "csv-missing-cells"
SMALLER = {
    **RAW,
    "tasks": [TASK],
    "axes": ["score"],
    "diagnostics": ["score"],
    "steps": {"share": 0.5, "tasks": {TASK: 4}},
    "candidates": {"score": ["confidence", "margin"]},
    "searches": ["lookum:paths=4,tau=1", "soar"],
}
del SMALLER["revision"]
CONTROL = "best of n like lookum:paths=4,tau=1"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"searches": ["llada"]}, "'llada' decides step by step; allowed: methods that own their loop"),
        ({"searches": ["best-of"]}, "'best-of' has no base method to be measured against"),
        ({"searches": ["sour"]}, "unknown policy 'sour'"),
        ({"end_to_end": False}, "allowed: names with end_to_end = true; they are arms of whole runs: switch it on"),
        ({"searches": "soar"}, "searches of the study file is 'soar'; allowed: a list"),
        # Branches would have been paid for before it was noticed: searches are decoded last.
        (
            {"searches": ["lookum:budget=3"]},
            r"'lookum:budget=3' on csv-missing-cells \(16 tokens, 4 steps\): budget is 3; allowed: 4 or more",
        ),
    ],
)
def test_what_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        StudyConfig.parse({**SMALLER, **changes})


def test_branches_do_not_depend_on_them():
    study, without = (
        StudyConfig.parse(SMALLER),
        StudyConfig.parse({k: v for k, v in SMALLER.items() if k != "searches"}),
    )
    assert study.searches["lookum:paths=4,tau=1"] == LookUM(paths=4, tau=1.0)
    assert study.config == without.config
    assert not without.searches


@pytest.fixture(scope="module")
def done(scaled, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompts, "score_texts", by_hash)
        known_gates(patch)
        network = scaled.llada(tmp_path_factory.mktemp("ck") / "llada", **SMALL)
        model = load(str(network), dtype="fp32", device="cpu")
        study = StudyConfig.parse(SMALLER)
        store = Store.create(tmp_path_factory.mktemp("study") / "out", study.config)
        assert uncounted_methods(study) == ["lookum:paths=4,tau=1", "soar"]
        assert run_study(study, store, lambda spec: model).complete
        with pytest.raises(OtherStudy, match="with other calibrations or searches than the study gives now"):
            run_study(StudyConfig.parse({**SMALLER, "searches": ["soar"]}), store, lambda spec: model)
        yield store


def test_every_search_is_decoded_with_its_base_and_its_control(done):
    table = done.read_arrow("decodes", ("axis", "arm", "split", "prompt", "forwards"))
    table = table.filter(pc.equal(table["axis"], SEARCH))
    rows = table.to_pylist()
    assert {row["split"] for row in rows} == {"evaluation"}
    spent = {
        arm: fmean(row["forwards"] for row in rows if row["arm"] == arm)
        for arm in dict.fromkeys(r["arm"] for r in rows)
    }
    names = ("lookum:paths=4,tau=1", "soar")
    beside = [f"{prefix}{name}" for prefix in ("", "base of ", "best of n like ") for name in names]
    assert sorted(spent) == sorted(["reference", *beside])
    (info,) = done.infos("decodes").values()
    about = info["searches"]["lookum:paths=4,tau=1"]
    assert about["n"] == int(spent["lookum:paths=4,tau=1"] / spent["base of lookum:paths=4,tau=1"]) > 1
    assert spent[CONTROL] == about["n"] * spent["base of lookum:paths=4,tau=1"] <= spent["lookum:paths=4,tau=1"]
    assert about["forwards"][CONTROL] == spent[CONTROL]


def test_the_report_has_them_beside_their_controls(done):
    found = analyse(done)
    names = found.select("searches", measure="prompts")["at"].tolist()
    assert names == ["lookum:paths=4,tau=1", "soar"]
    for at in names:
        search, control = (fact(found, "searches", "utility", arm=arm, at=at) for arm in ("search", "control"))
        assert fact(found, "searches", "difference", arm="search - control", at=at) == pytest.approx(search - control)
        assert fact(found, "searches", "prompts", at=at) == 3
    titles = [section.title for section in study_report(found).sections]
    assert "End to end: searches, beyond the paper" in titles
