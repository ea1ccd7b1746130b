"""Runs and branches as a page gets them: the same as from Python, scored by the task's own scorer."""

import pytest

from tests.helpers.cases import each_case
from tests.helpers.view_server import events, exact, mini
from unmask.base.errors import ConfigError
from unmask.methods import METHODS
from unmask.report.pages import futures_page
from unmask.tasks import find_task, score
from unmask.viewer.jobs import KeptRun, KeptRuns

PROMPT = {"model": "exact", "prompt": "ab", "options": {"max_new_tokens": 6, "steps": 3}}


@pytest.fixture(scope="module")
def run(client):
    """A run of `exact`, to branch from."""
    return client.told("api/run", PROMPT)["end"]


def test_own_prompt_decodes_as_generate_and_has_no_score(client):
    asked = {
        **PROMPT,
        "policy": "klass",
        "settings": {"threshold": 0.6},
        "options": {"max_new_tokens": 6, "seed": 3},
    }
    told = client.told("api/run", asked)["end"]
    same = exact().generate("ab", policy="klass", threshold=0.6, max_new_tokens=6, seed=3)
    assert told["record"]["text"] == same.text
    assert len(told["record"]["steps"]) == len(same.trajectory.steps)
    assert told["forwards"] == same.forwards
    assert (told["record"]["score"], told["record"]["explanation"], told["judged"]) == (None, None, False)


def test_streamed_steps_are_those_of_the_record(client):
    _, text = client.ask("POST", "api/run", PROMPT)
    heard = events(text)
    record = dict(heard)["end"]["record"]
    assert [value for name, value in heard if name == "step"] == record["steps"]
    start = dict(heard)["start"]["record"]
    assert (start["tokens"], start["fixed"]) == (record["tokens"], record["fixed"])
    assert start["steps"] == []


def test_blanks_are_infilled(client):
    told = client.told("api/run", {"model": "exact", "prompt": "a[MASK*3]b"})["end"]
    assert told["record"]["text"] == exact().infill("a[MASK*3]b").text


def test_task_answers_have_the_score_of_their_task(client):
    example = find_task("unique-list-commit").examples("evaluation")[0]
    prompt = {"task": example.task, "split": "evaluation", "id": example.id}
    told = client.told("api/run", {"model": "mini", "task": prompt, "options": {"steps": 6}})["end"]
    same = mini().generate(example.prompt, max_new_tokens=find_task(example.task).max_new_tokens, steps=6)
    verdict = score(same.text, example)
    assert told["record"]["text"] == same.text
    assert (told["record"]["score"], told["record"]["explanation"]) == (verdict.utility, verdict.reason)


@pytest.mark.parametrize("rest", [False, True])
def test_branch_decodes_as_model_branch(client, run, rest):
    from unmask.methods import candidates

    model = exact()
    done = model.generate("ab", max_new_tokens=6, steps=3)
    for axis, named in candidates().items():
        for name, policy in named.items():
            asked = {"run": run["run"], "step": 1, "instead": {"axis": axis, "candidate": name}, "rest": rest}
            told = client.told("api/branch", asked)["end"]
            same = model.branch(done, step=1, **({"policy": policy} if rest else {"action": policy}))
            assert told["record"]["text"] == same.text, (axis, name)
            assert told["record"]["steps"][0] == run["record"]["steps"][0]


def test_branch_streams_its_own_steps(client, run):
    asked = {"run": run["run"], "step": 1, "instead": {"axis": "cardinality", "candidate": "count:1"}}
    _, text = client.ask("POST", "api/branch", asked)
    heard = events(text)
    assert dict(heard)["start"]["record"]["steps"] == run["record"]["steps"][:1]
    steps, record = [value for name, value in heard if name == "step"], dict(heard)["end"]["record"]
    assert [step["step"] for step in steps] == [2, 3]
    # Of the branch's own step only both canvases are known while it streams, not how sure the model was.
    assert [change[:2] for change in steps[0]["changes"]] == [change[:2] for change in record["steps"][1]["changes"]]
    assert steps[1:] == record["steps"][2:]


@each_case("name", METHODS)
def test_any_method_continues_or_is_refused_with_a_reason(client, run, name):
    asked = {"run": run["run"], "step": 1, "instead": {"policy": name}, "rest": True}
    told = dict(events(client.ask("POST", "api/branch", asked)[1]))
    if "error" in told:
        assert "allowed" in told["error"]
    else:
        assert "_" not in told["end"]["record"]["text"]
        assert told["end"]["record"]["policy"] == f"{name} from step 2 on"


def test_searches_take_no_single_step(client, run):
    reason = client.refused("api/branch", {"run": run["run"], "step": 1, "instead": {"policy": "medal"}})
    assert "from here on" in reason


def test_chosen_token_stands_at_its_position(client, run):
    places = [at for at, token in enumerate(run["record"]["tokens"]) if token is None]
    later = {at for step in run["record"]["steps"][1:] for at, _, _ in step["changes"]}
    place = next(at for at in places if at in later)
    offered = client.get(f"api/suggestions?run={run['run']}&step=1&position={place}")["tokens"]
    assert sorted(one["text"] for one in offered) == ["a", "b", "c", "d"]
    assert [one["p"] for one in offered] == sorted((one["p"] for one in offered), reverse=True)
    worst = offered[-1]
    for how in ({"token": worst["token"]}, {"text": worst["text"]}):
        asked = {"run": run["run"], "step": 1, "instead": {"position": place, **how}}
        record = client.told("api/branch", asked)["end"]["record"]
        assert record["text"][place - 2] == worst["text"]
        assert [change[:2] for change in record["steps"][1]["changes"]] == [[place, worst["text"]]]


def test_bad_changes_are_refused_in_one_line(client, run):
    place = run["record"]["steps"][0]["changes"][0][0]
    for instead, why in (
        ({"position": place, "text": "a"}, "a masked one"),
        ({"position": 0, "text": "a"}, "a masked one"),
        ({"position": 10**5, "text": "a"}, "a masked one"),
        ({"axis": "score", "candidate": "height"}, "unknown candidate"),
        ({"policy": "os:system"}, "unknown policy"),
    ):
        assert why in client.refused("api/branch", {"run": run["run"], "step": 1, "instead": instead})
    free = next(at for at, _, _ in run["record"]["steps"][-1]["changes"])
    for instead, why in (({"position": free, "text": "ab"}, "2 tokens"), ({"position": free, "token": 4}, "0 to 3")):
        assert why in client.refused("api/branch", {"run": run["run"], "step": 1, "instead": instead})
    assert "0 to 2" in client.refused("api/branch", {"run": run["run"], "step": 9, "instead": {"policy": "llada"}})
    assert "decode it again" in client.refused("api/branch", {"run": "x", "step": 0, "instead": {"policy": "llada"}})


@each_case(
    ("change", "why"),
    [
        ({"model": "unknown"}, "unknown model"),
        ({"prompt": "xyz!"}, "holds the character"),
        ({"options": {"temperature": "hot"}}, "temperature"),
        ({"options": {"temperature": -1}}, "temperature"),
        ({"options": {"cache": "../x"}}, "cache"),
        ({"options": {"steps": 100}}, "steps"),
        ({"policy": "llada", "settings": {"unknown": 1}}, "unknown setting"),
        ({"policy": "llada", "settings": {"block_length": "x"}}, "block_length"),
    ],
)
def test_bad_runs_are_refused_in_one_line(client, change, why):
    reason = client.refused("api/run", {**PROMPT, **change})
    assert why in reason
    assert "\n" not in reason
    assert "unexpected" not in reason


def test_exported_runs_travel_whole_and_as_text(client, run):
    branch = client.told("api/branch", {"run": run["run"], "step": 1, "instead": {"policy": "dream"}})["end"]
    status, page = client.ask("POST", "api/export", {"runs": [run["run"], branch["run"]]})
    assert status == 200
    assert client.server.token not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert run["record"]["text"] in page
    odd = {**run["record"], "prompt": "</pre><script>hurt()</script>", "text": "<img src=x onerror=hurt()>"}
    page = futures_page([odd])
    assert "<script>hurt()" not in page
    assert "<img" not in page
    for runs in ([], ["x"] * 9, "x", [3], None):
        assert "runs" in client.refused("api/export", {"runs": runs})


def test_oldest_runs_are_forgotten(run):
    kept, done = KeptRuns(most=2), exact().generate("ab", max_new_tokens=2)
    first, second, third = (kept.add(KeptRun(done, {}, "exact")) for _ in range(3))
    assert kept.get(second.id) is second
    assert kept.get(third.id) is third
    with pytest.raises(ConfigError, match="decode it again"):
        kept.get(first.id)


def test_odd_prompts_stay_text(client):
    odd = "<script>alert(1)</script>\u202e\U0001f600\u2028\ud800 end"
    record = client.told("api/run", {"model": "mini", "prompt": odd, "options": {"max_new_tokens": 4}})["end"]["record"]
    assert record["prompt"] == odd.replace("\ud800", "\ufffd")
