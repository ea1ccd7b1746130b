"""A run as plain values: replaying them gives every canvas of the run."""

import json

import pytest
import torch

from unmask.api.load import load
from unmask.base.errors import ConfigError, SchemaError
from unmask.core import Noise, State, Trajectory
from unmask.engine import decode
from unmask.look.run import (
    FORMAT,
    check_record,
    ends_of,
    filler_texts,
    run_page,
    run_record,
    runs_page,
    spelling,
    step_record,
)
from unmask.methods import METHODS, fixed_action


@pytest.fixture(scope="module")
def exact():
    return load("exact", n=10)


@pytest.fixture(scope="module")
def mini():
    return load("mini")


def replayed(record):
    """The canvas at the start and after each step, as a page builds it."""
    tokens = list(record["tokens"])
    yield list(tokens)
    for step in record["steps"]:
        for position, text, _ in step["changes"]:
            tokens[position] = text
        yield list(tokens)


def canvases(run, codec):
    """The same from the trajectory itself."""
    length = int(run.state.length_B[0])
    free, mask = run.state.answer_BL[0].tolist(), run.state.mask_id
    for canvas in run.canvases():
        tokens = canvas[:length].tolist()
        yield [None if free[p] and token == mask else codec.decode([token]) for p, token in enumerate(tokens)]


@pytest.mark.parametrize("policy", ["llada", "remdm", "revised", "wino", "core", "best-of", "fixed"])
def test_replaying_the_changes_gives_every_canvas(policy, exact):
    assert policy in METHODS
    run = exact.generate(["ab", "cda"], policy=policy, temperature=0.8, seed=3).trajectory
    for row in (0, 1):
        record = run_record(run, row, exact.codec)
        assert list(replayed(record)) == list(canvases(run.row(row), exact.codec))
        assert check_record(json.loads(json.dumps(record, allow_nan=False))) == record


def test_what_is_said_of_a_run(mini):
    out = mini.generate("What is 2+2?", max_new_tokens=24)
    record = run_record(out.trajectory, 0, mini.codec, score=0.5, explanation="half right")
    assert (record["model"], record["policy"], record["prompt"]) == ("mini", "llada", "What is 2+2?")
    assert (record["text"], record["score"], record["explanation"]) == (out.text, 0.5, "half right")
    final = out.trajectory.state.tokens_BL[0].tolist()
    ends = set(mini.denoiser.vocabulary.eos_ids)
    assert ends_of(mini.codec) == ends
    assert filler_texts(mini.codec) == ["<|endoftext|>", "<|eot_id|>"]
    first = record["fixed"].index(False)
    assert record["filler"] == [False] * first + [token in ends for token in final[first:]]
    assert any(record["filler"])
    assert record["tokens"][first:] == [None] * 24


def test_confidence_is_that_of_the_proposal_when_it_was_committed(exact):
    run = exact.generate("ab", policy="remdm", seed=1).trajectory
    record = run_record(run, 0, exact.codec)
    for step, seen in zip(record["steps"], run.row(0).steps, strict=True):
        filled = [change for change in step["changes"] if change[1] is not None]
        assert [change[0] for change in filled] == seen.revealed_BL[0].nonzero().flatten().tolist()
        for position, _, sure in filled:
            assert sure == pytest.approx(float(seen.prediction.confidence_BN[0, position]), abs=1e-4)


def test_a_position_that_is_refilled_in_its_step_is_marked():
    """Re-masked and revealed with the token it had: the canvas does not move, the record says it."""
    from unmask.core import Action
    from unmask.engine import GivenAction, decode_one_step

    model = load("exact", n=6)
    whole = model.generate("ab", policy="fixed", commit="none", steps=2)
    start = whole.trajectory.resume(0, 1)
    there = start.state.revisable_BL
    action = Action(
        alpha_BJ=torch.tensor([[1.0, 0.0, 0.0, 0.0, 0.0]]),
        region_BL=there,
        kappa_B=torch.ones(1),
        commit_BL=torch.ones_like(there),
        remask_BL=there,
        tokens_BL=torch.where(there, start.state.tokens_BL, -1),
    )
    run = decode_one_step(model.denoiser, GivenAction(action), start)
    last = run_record(run, 0, model.codec)["steps"][-1]
    places = there[0].nonzero().flatten().tolist()
    assert [change[0] for change in last["changes"] if change[1] is None] == places
    assert [change[2] for change in last["changes"] if change[1] is not None] == [None] * len(places)
    assert last["why"] == f"{len(places)} position{'s' * (len(places) > 1)} re-masked"


def test_of_a_file_as_of_the_run(exact, tmp_path):
    out = exact.infill("ab__cd____", policy="remdm")
    out.trajectory.save(tmp_path / "run.npz")
    record = run_record(Trajectory.load(tmp_path / "run.npz"), 0, exact.codec, top=2)
    assert record == run_record(out.trajectory, 0, exact.codec, top=2)
    assert (record["text"], record["prompt"]) == (out.text, "ab__cd____")
    assert record["fixed"] == [letter != "_" for letter in "ab__cd____"]


def test_of_a_run_that_says_nothing_about_itself(exact):
    mask = exact.denoiser.vocabulary.mask_id
    state = State.from_prompts([[0, 1]], new_tokens=4, steps=2, mask_id=mask)
    run = decode(exact.denoiser, fixed_action(), state, noise=Noise.of([7]))
    record = run_record(run, 0, exact.codec)
    assert (record["model"], record["policy"], record["prompt"]) == ("", "fixed", "ab")
    assert record["text"] == exact.codec.decode(run.state.tokens_BL[0, 2:6].tolist())


def test_alternatives_only_where_asked_and_as_many_as_recorded(exact):
    run = exact.generate("ab", steps=4).trajectory
    assert "top" not in run_record(run, 0, exact.codec)["steps"][0]
    changed = run_record(run, 0, exact.codec, top=9)["steps"][0]
    assert sorted(map(int, changed["top"])) == [change[0] for change in changed["changes"]]
    everywhere = run_record(run, 0, exact.codec, top=1, top_masked=True)["steps"][0]
    assert sorted(map(int, everywhere["top"])) == run.steps[0].state.masked_BL[0].nonzero().flatten().tolist()
    assert all(len(tokens) == 1 for tokens in everywhere["top"].values())


def test_a_step_of_a_batch_as_it_happens(exact):
    """What a screen that follows the run makes of it is what the finished run says."""
    spell, told = spelling(exact.codec), {0: [], 1: []}

    def follow(traj):
        for at, row in enumerate(traj.rows_B.tolist()):
            number = len(told[row]) + 1
            told[row].append(step_record(traj.last, traj.state, spell, number=number, at=at))

    run = exact.generate(["a", "abcda"], policy="remdm", on_step=follow).trajectory
    for row in (0, 1):
        assert told[row] == run_record(run, row, exact.codec)["steps"]


def test_a_run_without_steps(exact):
    with pytest.raises(ConfigError, match="has no steps; allowed: a recorded run; decode it again with record=True"):
        run_record(exact.generate("ab", record=False).trajectory, 0, exact.codec)
    with pytest.raises(ConfigError, match="row is 5; allowed: 0 to 0"):
        run_record(exact.generate("ab").trajectory, 5, exact.codec)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, r"format of the run record is 2; allowed: 1; make it again .* `unmask show`"),
        ({"format": True}, "format of the run record is True"),
        ({"fixed": [True]}, "one entry per position"),
        ({"steps": "many"}, "one entry per position"),
        ({"steps": [{"step": 1}]}, "step 1 of the run record makes no sense"),
        ({"tokens": None}, "one entry per position"),
    ],
)
def test_other_records_are_refused(change, words, exact):
    record = run_record(exact.generate("ab").trajectory, 0, exact.codec)
    with pytest.raises(SchemaError, match=words):
        check_record({**record, **change})
    with pytest.raises(SchemaError, match=words):
        run_page({**record, **change})


def test_no_record_at_all():
    with pytest.raises(SchemaError, match="allowed: 1"):
        check_record([1])
    with pytest.raises(SchemaError, match="the run record has no explanation, filler"):
        check_record({"format": FORMAT})


def test_a_page_holds_the_record_as_text(exact):
    record = run_record(exact.generate("ab").trajectory, 0, exact.codec, prompt="</script><b>&", explanation="<i>")
    written = run_page(record)
    assert "<dd>&lt;/script&gt;&lt;b&gt;&amp;</dd>" in written
    assert "<i>" not in written


def test_rows_of_one_decode_share_a_page(exact):
    run = exact.generate(["ab", "cda"]).trajectory
    records = [run_record(run, row, exact.codec) for row in (0, 1)]
    page = runs_page(records, "more <elsewhere>")
    assert [f'id="{name}-{row}"' in page for name in ("grid", "run") for row in (0, 1)] == [True] * 4
    assert "more &lt;elsewhere&gt;" in page
    assert runs_page(records[:1]) == run_page(records[0])
    with pytest.raises(SchemaError, match="format of the run record is 2"):
        runs_page([records[0], {**records[1], "format": 2}])


def test_as_many_alternatives_as_were_recorded(exact):
    few, many = (exact.generate("ab", record_top=top).trajectory for top in (0, 4))
    counts = [
        {len(top) for step in run_record(run, 0, exact.codec, top=4)["steps"] for top in step["top"].values()}
        for run in (few, many)
    ]
    assert counts == [{2}, {4}]
