"""Runs and branches as a page gets them: the package's own results, scored by the task's own judge."""

import pytest

from tests.helpers.cases import each_case
from tests.helpers.view_server import events, exact, mini
from unmask.methods import METHODS
from unmask.tasks import find_task, score
from unmask.viewer.asked import RUN_OPTIONS

PROMPT = {"model": "exact", "prompt": "ab", "options": {"max_new_tokens": 6, "steps": 3}}


@pytest.fixture(scope="module")
def run(client):
    """A run of `exact`, to branch from."""
    return client.told("api/run", PROMPT)["end"]


def test_an_own_prompt_is_what_generate_makes_of_it_and_has_no_score(client):
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


def test_a_text_with_blanks_is_filled_in(client):
    told = client.told("api/run", {"model": "exact", "prompt": "a[MASK*3]b"})["end"]
    assert told["record"]["text"] == exact().infill("a[MASK*3]b").text


def test_a_task_answer_is_scored_by_its_judge(client):
    example = find_task("unique-list-commit").examples("evaluation")[0]
    prompt = {"task": example.task, "split": "evaluation", "id": example.id}
    told = client.told("api/run", {"model": "mini", "task": prompt, "options": {"steps": 6}})["end"]
    same = mini().generate(example.prompt, max_new_tokens=find_task(example.task).max_new_tokens, steps=6)
    verdict = score(same.text, example)
    assert told["record"]["text"] == same.text
    assert (told["record"]["score"], told["record"]["explanation"]) == (verdict.utility, verdict.reason)


@pytest.mark.parametrize("rest", [False, True])
def test_a_branch_is_what_the_api_makes_of_it(client, run, rest):
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


def test_the_steps_of_a_branch_are_streamed_from_its_own_on(client, run):
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
def test_any_method_can_go_on_or_says_why_not(client, run, name):
    asked = {"run": run["run"], "step": 1, "instead": {"policy": name}, "rest": True}
    told = dict(events(client.ask("POST", "api/branch", asked)[1]))
    if "error" in told:
        assert "allowed" in told["error"]
    else:
        assert "_" not in told["end"]["record"]["text"]
        assert told["end"]["record"]["policy"] == f"{name} from step 2 on"


def test_a_search_takes_no_single_step(client, run):
    reason = client.refused("api/branch", {"run": run["run"], "step": 1, "instead": {"policy": "medal"}})
    assert "from here on" in reason


def test_a_token_by_hand_stands_where_it_was_put(client, run):
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


def test_bad_deviations_are_refused_in_one_line(client, run):
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
def test_what_cannot_be_decoded_is_said_in_one_line(client, change, why):
    reason = client.refused("api/run", {**PROMPT, **change})
    assert why in reason
    assert "\n" not in reason
    assert "unexpected" not in reason


def test_the_options_of_a_page_are_options_of_generate():
    from unmask.api.options import FUNCTION_OPTIONS

    assert set(RUN_OPTIONS) <= set(FUNCTION_OPTIONS["generate"])


def test_odd_prompts_stay_text(client):
    odd = "<script>alert(1)</script>\u202e\U0001f600\u2028\ud800 end"
    record = client.told("api/run", {"model": "mini", "prompt": odd, "options": {"max_new_tokens": 4}})["end"]["record"]
    assert record["prompt"] == odd.replace("\ud800", "\ufffd")
