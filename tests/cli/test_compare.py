"""`unmask compare` as a user types it, on a tiny checkpoint."""

import csv
import json
import random
import sys
import time

import pytest

from tests.helpers.own_policies import GOOD
from unmask.base.errors import ConfigError
from unmask.cli.app import main
from unmask.lab.compare import run as compare_run
from unmask.lab.compare.plan import FEW_PROMPTS

CSV = "csv-missing-cells"
FILES = (
    "compare.csv",
    "summary.md",
    "summary.json",
    "table.tex",
    "figure.svg",
    "figure.pdf",
    "compare.html",
    "timing.md",
    "timing.json",
    "figure-time.svg",
)
ALONE = ("--policy", "reference")


@pytest.fixture
def run(capsys):
    def call(*arguments):
        code = main(["compare", *(str(a) for a in arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture(scope="module")
def tiny(scaled, tmp_path_factory):
    return scaled.llada(tmp_path_factory.mktemp("ck") / "llada")


@pytest.fixture(scope="module")
def tiny_dream(scaled, tmp_path_factory):
    return scaled.dream(tmp_path_factory.mktemp("ck") / "dream")


def quick(model, *more):
    return "--model", model, "--device", "cpu", "--task", CSV, "--prompts", 2, "--steps", 2, *more


def test_files_and_table(run, tiny, tmp_path):
    extra = "fixed:region=block:8,kappa=above:0.9"
    code, out, err = run(*quick(tiny, "--axis", "commitment", "--policy", extra, "--out", tmp_path / "new"))
    assert code == 0
    labels = ["reference", *(f"commitment={n}" for n in ("none", "confidence:0.9", "margin:0.5")), extra]
    assert [line.split()[0] for line in out.splitlines() if line.startswith(tuple(labels))] == labels
    assert out.splitlines()[-len(FILES) :] == [str(tmp_path / "new" / name) for name in FILES]
    assert "10/10 answers" in err
    rows = list(csv.DictReader((tmp_path / "new" / "compare.csv").open(encoding="utf-8", newline="")))
    assert [row["policy"] for row in rows] == [label for label in labels for _ in range(2)]
    document = json.loads((tmp_path / "new" / "summary.json").read_text(encoding="utf-8"))
    assert document["config"]["policies"][extra]["kappa"] == "above:0.9"
    assert len(document["config"]["model"]["fingerprint"]) == 16
    assert document["config"]["model"]["device"] == "cpu"
    assert "commitment=none" in (tmp_path / "new" / "summary.md").read_text(encoding="utf-8")


def test_json_is_all_of_stdout(run, tiny):
    code, out, _ = run(*quick(tiny, *ALONE, "--json", "--quiet", "--split", "fresh", "--seed", 3))
    document = json.loads(out)
    assert code == 0
    assert (document["split"], document["config"]["seed"]) == ("fresh", 3)
    assert [line["policy"] for line in document["lines"]] == ["reference"]


def test_quiet_says_only_where_the_files_are(run, tiny, tmp_path):
    code, out, err = run(*quick(tiny, *ALONE, "--quiet", "--out", tmp_path))
    assert (code, err) == (0, "")
    assert out.splitlines() == [str(tmp_path / name) for name in FILES]


def test_quiet_with_nothing_to_show_is_refused_before_the_work(run):
    code, out, err = run("--model", "exact", "--quiet")
    assert (code, out) == (2, "")
    assert "allowed: with --out or --json" in err


def test_another_comparison_is_not_overwritten(run, tiny, tmp_path):
    arguments = quick(tiny, *ALONE, "--prompts", 1, "--out", tmp_path)
    code, out, _ = run(*arguments)
    assert code == 0
    assert "1 answer in" in out
    words = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert f"{CSV}: near 0, shown and not averaged (no policy's mean utility reaches 0.02)" in words
    assert "Mean over" not in words
    before = (tmp_path / "summary.json").read_bytes()
    assert run(*arguments, "--quiet")[0] == 0
    code, out, err = run(*arguments, "--seed", 3, "--axis", "commitment")
    assert (code, out) == (2, "")
    assert "summary.json' is of another comparison (seed, policies, methods differ)" in err
    assert (tmp_path / "summary.json").read_bytes() == before
    (tmp_path / "summary.json").write_text("[]", encoding="utf-8")
    code, _, err = run(*arguments)
    assert code == 2
    assert "no summary of `unmask compare`" in err


OWN = "mine.py:Counted:count=3"
STOPPING = GOOD.replace('raise KeyError("half a character: \\ud800")', "raise KeyboardInterrupt")


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with a user's policies, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(GOOD, encoding="utf-8")
    return tmp_path / "mine.py"


def test_a_policy_of_ones_own_is_always_shown(run, tiny, mine):
    """Beside the reference alone, beside the candidates of an axis, and beside those that were picked."""
    (mine.parent / "picks.json").write_text(json.dumps({"picks": {CSV: "region=block:8", "macro": OWN}}))
    for more in ([], ["--axis", "commitment"], ["--policies-from", "picks.json"]):
        code, out, err = run(*quick(tiny, "--policy", OWN, *more))
        assert code == 0, err
        assert any(line.startswith(OWN) for line in out.splitlines())
    code, _, err = run(*quick(tiny, "--policies-from", "picks.json"))
    assert code == 2
    assert f"--policies-from names '{OWN}', no candidate of an axis; allowed: with --policy" in err
    code, out, _ = run(*quick(tiny, "--policy", OWN, "--json", "--quiet"))
    assert code == 0
    recorded = json.loads(out)["config"]["policies"][OWN]
    assert (recorded["name"], recorded["count"]) == ("counted", 3)
    assert recorded["class"].startswith("Counted, code ")


def test_a_policy_of_ones_own_with_other_code_is_another_comparison(run, tiny, mine):
    arguments = quick(tiny, "--policy", OWN, "--out", "out", "--quiet")
    assert run(*arguments)[0] == 0
    mine.write_text(GOOD + "\n# another\n", encoding="utf-8")
    code, _, err = run(*arguments)
    assert code == 2
    assert "is of another comparison (policies differ)" in err


def test_a_policy_of_ones_own_that_raises_costs_nothing_but_itself(run, tiny, mine):
    code, out, _ = run(*quick(tiny, "--policy", "mine.py:Raises", "--policy", OWN, "--out", "out"))
    assert code == 0
    assert f"{CSV}: without mine.py:Raises (unexpected KeyError" in out
    document = json.loads((mine.parent / "out" / "summary.json").read_text(encoding="utf-8"))
    assert 'KeyError("half a character' in document["left_out"][0]["traceback"]
    assert [line["policy"] for line in document["lines"]] == ["reference", OWN]


def test_what_was_damaged_is_said(run, tiny, tmp_path):
    arguments = quick(tiny, *ALONE, "--out", tmp_path)
    assert run(*arguments)[0] == 0
    before = (tmp_path / "compare.csv").read_bytes()
    (piece,) = (tmp_path / "pieces").iterdir()
    piece.write_bytes(piece.read_bytes().replace(b"utility", b"utilitz"))
    code, _, err = run(*arguments)
    assert code == 0
    assert f"1 damaged file of {tmp_path}: decoded again" in err
    assert (tmp_path / "compare.csv").read_bytes() == before
    assert "2/2 answers (2 from before)" in run(*arguments)[2]


@pytest.mark.parametrize(
    ("out", "words"), [([], "nothing is kept"), (["--out", "out"], "1 finished batch kept in 'out'")]
)
def test_ctrl_c_says_what_is_kept(run, tiny, mine, monkeypatch, out, words):
    mine.write_text(STOPPING, encoding="utf-8")
    code, _, err = run(*quick(tiny, "--policy", "mine.py:Raises", *out))
    assert code == 130
    assert "interrupted: 2 of 4 answers" in err
    assert words in err
    assert "the same command goes on" in err


def test_ctrl_c_before_anything_is_finished_claims_nothing(run, tiny, mine, monkeypatch):
    """And after a run that was stopped later it says what that one left."""
    mine.write_text(STOPPING, encoding="utf-8")
    arguments = quick(tiny, "--policy", "mine.py:Raises", "--out", "out")
    with monkeypatch.context() as patched:
        patched.setattr(compare_run, "decode_prompts", lambda *args, **named: raise_(KeyboardInterrupt()))
        code, _, err = run(*arguments)
    assert code == 130
    assert "interrupted: no batch was finished, nothing is kept yet; the same command begins again" in err
    assert run(*arguments)[0] == 130
    with monkeypatch.context() as patched:
        patched.setattr(compare_run.BatchStore, "read", lambda self, key: raise_(KeyboardInterrupt()))
        err = run(*arguments)[2]
    assert "interrupted: no batch was finished; 1 finished batch kept in 'out'; the same command goes on" in err


def raise_(error):
    raise error


def test_a_control_is_a_task_and_a_task_may_be_named_twice(run, tiny):
    control = "td07-clustered-mask"
    given = ("--task", control, "--task", control, "--prompts", 1, "--steps", 2, "--device", "cpu", *ALONE)
    code, out, _ = run("--model", tiny, *given, "--json", "--quiet")
    assert code == 0
    assert [task["task"] for task in json.loads(out)["tasks"]] == [control]
    code, _, err = run("--model", tiny, "--task", "clustered-mask")
    assert code == 2
    assert control in err


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_and_ends_the_same(process, tiny, tmp_path):
    """SIGKILL at twelve random moments; what is there is never lost, and the files are those of a run in one piece."""
    more = ("--axis", "score", "--batch-size", "1", "--quiet", "--out")
    arguments = ["compare", *map(str, quick(tiny, "--prompts", 6, *more))]
    whole = process(*arguments, str(tmp_path / "whole"))
    assert whole.wait() == 0
    draw, folder, there = random.Random(7), tmp_path / "killed", set()
    for _ in range(12):
        started = process(*arguments, str(folder))
        wanted = len(there) + draw.randrange(4)
        while started.poll() is None and len(list(folder.glob("pieces/*.json"))) < wanted:
            time.sleep(0.005)
        time.sleep(draw.random() / 50)
        started.kill()
        started.wait()
        now = set(folder.glob("pieces/*.json"))
        assert there <= now
        there = now
    ended = process(*arguments, str(folder))
    assert ended.wait() == 0
    for name in ("compare.csv", "summary.md", "summary.json", "figure.svg"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not list(folder.rglob("*.partial"))


def test_dream_is_compared_with_its_own_update(run, tiny_dream):
    code, out, _ = run(*quick(tiny_dream, "--json", "--quiet", "--axis", "cardinality"))
    policies = json.loads(out)["config"]["policies"]
    assert code == 0
    assert policies["reference"]["name"] == "dream"
    assert policies["reference"]["alg"] == "entropy"
    assert policies["cardinality=count:1"]["base"]["name"] == "dream"


def test_presets_and_compositions_are_policies(run, tiny_dream):
    preset, composed = "klass:preset=gsm8k", "composed:score=margin,region=block:8,cardinality=eb:0.1"
    code, out, err = run(*quick(tiny_dream, "--policy", preset, "--policy", composed, "--json", "--quiet"))
    assert code == 0, err
    policies = json.loads(out)["config"]["policies"]
    assert (policies[preset]["variant"], policies[preset]["epsilon"]) == ("dream", 0.001)
    assert (policies[composed]["region"], policies[composed]["cardinality"]) == ("block:8", "eb:0.1")


def test_an_axis_twice_and_all_of_them_are_the_same(run, tiny):
    code, out, _ = run(*quick(tiny, "--json", "--quiet", "--axis", "all", "--axis", "score"))
    policies = json.loads(out)["config"]["policies"]
    assert code == 0
    assert len(policies) == 1 + 5 + 7 + 7 + 3
    assert next(iter(policies)) == "reference"


def test_evaluation_prompts_come_with_a_word(run, tiny, tmp_path):
    code, out, err = run(*quick(tiny, "--split", "evaluation", "--axis", "score", "--out", tmp_path / "a"))
    assert code == 0
    assert "evaluation prompts are for showing a result once" in err
    assert "evaluation prompts" not in out
    picks = tmp_path / "a" / "summary.json"
    code, _, _ = run(*quick(tiny, "--axis", "score", "--policies-from", picks, "--out", tmp_path / "b"))
    assert code == 0
    assert "other prompts" in (tmp_path / "b" / "summary.md").read_text(encoding="utf-8")


def test_picks_alone_are_what_is_decoded(run, tiny, tmp_path):
    picks = tmp_path / "summary.json"
    named = {CSV: "region=block:8", "carry-rtl": "reference", "macro": "cardinality=count:2"}
    picks.write_text(json.dumps({"picks": named}), encoding="utf-8")
    code, out, _ = run(*quick(tiny, "--json", "--quiet", "--policies-from", picks))
    assert code == 0
    assert list(json.loads(out)["config"]["policies"]) == ["reference", "region=block:8", "cardinality=count:2"]
    picks.write_text(json.dumps({"picks": {CSV: "region=blok:8"}}), encoding="utf-8")
    code, _, err = run(*quick(tiny, "--json", "--quiet", "--policies-from", picks))
    assert code == 2
    assert "unknown candidate of --policies-from 'region=blok:8'; did you mean region=block:8," in err


def test_missing_data_is_reported(run, tiny, tmp_path):
    arguments = ["--model", tiny, "--device", "cpu", "--steps", 2, "--prompts", 2, "--data-dir", tmp_path, *ALONE]
    code, out, _ = run(*arguments, "--task", CSV, "--task", "gsm8k")
    assert code == 0
    assert "gsm8k: not available" in out
    code, out, err = run(*arguments, "--task", "gsm8k", "--out", tmp_path / "new")
    assert (code, out) == (2, "")
    assert "nothing could be decoded" in err
    # A command that is refused leaves nothing, no plan and no folder.
    assert not (tmp_path / "new").exists()


def test_without_an_axis_or_a_policy(run, tiny, tmp_path, monkeypatch):
    """It says what there is, compares what may save forwards with the reference, draws it and writes a page."""
    monkeypatch.chdir(tmp_path)
    assert FEW_PROMPTS == 10
    monkeypatch.setattr("unmask.lab.compare.plan.FEW_PROMPTS", 1)
    given = ("--model", tiny, "--device", "cpu", "--task", CSV, "--steps", 4)
    code, _, err = run(*given)
    assert code == 0, err
    assert "no policy is named: the reference beside" in err
    assert "on 1 prompts of each task" in err
    assert "--axis score, region, cardinality, commitment or all" in err
    assert "--policy reference for that alone" in err
    (folder,) = (tmp_path / "out").iterdir()
    assert f"results go to {folder.relative_to(tmp_path)}" in err
    document = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    policies = [line["policy"] for line in document["lines"]]
    assert policies[0] == "reference"
    assert {"fast-dllm", "klass", "eb-sampler"} <= set(policies)
    # Nothing that looks ahead, searches, draws, or is bound to as many steps as the reference.
    assert not {"vsb", "core", "info-gain", "soar", "medal", "dos", "p2", "remdm", "remdm-llada"} & set(policies)
    assert document["config"]["prompts"] == 1
    assert all(line["answer_tokens_per_forward"]["mean"] is not None for line in document["lines"])
    assert "data:image/svg+xml" in (folder / "compare.html").read_text(encoding="utf-8")
    # The same command goes on in the same folder.
    assert "from before" in run(*given)[2]
    assert list((tmp_path / "out").iterdir()) == [folder]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--task", "carry"], ["unknown task 'carry'", "did you mean carry-rtl", "constructed"]),
        (["--axis", "regoin"], ["unknown axis 'regoin'", "region"]),
        (["--split", "test"], ["unknown split 'test'", "evaluation", "fresh"]),
        (["--policy", "winno"], ["unknown policy 'winno'", "wino"]),
        (["--policy", "wino:block=8"], ["unknown setting of wino 'block'", "block_length"]),
        (["--policy", "wino:block_length"], ["'block_length' is not KEY=VALUE"]),
        (["--policy", "wino:"], ["'wino:'", "not KEY=VALUE"]),
        (["--policy", "wino:block_length="], ["block_length of wino is ''", "1 to 1000000"]),
        (["--policy", "wino:block_length=eight"], ["block_length of wino is 'eight'", "1 to 1000000"]),
        (["--policy", "wino:block_length=8,"], ["'' is not KEY=VALUE"]),
        (["--policy", "wino:block_length=8,block_length=4"], ["block_length is given twice"]),
        (["--policy", "wino:block_length:8"], ["'block_length:8' is not KEY=VALUE"]),
        (["--policy", ":x=1"], ["':x=1' names no policy", "begin with a name"]),
        (["--policy", ""], ["'' names no policy"]),
        (["--policy", ":"], ["':'"]),
        (["--policy", "x=1"], ["'x=1' names no policy"]),
        (["--policy", "mine.py"], ["'mine.py' is a file without a class", "add :Class"]),
        (["--policy", "nowhere.py:Mine"], ["'nowhere.py:Mine' cannot be read"]),
        (["--policy", "nowhere:Mine"], ["module 'nowhere'", "is not found"]),
        (["--policy", "nowhere.py:Mine:x=1:2,y=[1,2]"], ["'nowhere.py:Mine' cannot be read"]),
        (["--policy", "reference", "--policy", "refrence"], ["unknown policy 'refrence'"]),
        (["--policy", "wino", "--policy", "wino"], ["twice"]),
        (["--policy", "fixed:region=blok:8"], ["unknown region 'blok'"]),
        (["--prompts", "0"], ["prompts"]),
        (["--policies-from", "nowhere.json"], ["nowhere.json", "cannot be read"]),
        (["--model", "minni"], ["unknown model 'minni'"]),
    ],
)
def test_refusals(run, arguments, words):
    model = [] if "--model" in arguments else ["--model", "exact"]
    code, out, err = run(*model, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert all(word in err for word in words), err


def test_a_folder_that_is_a_file_is_refused_before_the_work(run, tmp_path):
    (tmp_path / "taken").write_text("", encoding="utf-8")
    code, _, err = run("--model", "exact", "--out", tmp_path / "taken")
    assert code == 2
    assert "is a file" in err


def test_steps_beyond_a_horizon(run, tiny, tmp_path):
    code, _, err = run("--model", tiny, "--device", "cpu", "--task", CSV, "--steps", 17, "--out", tmp_path / "new")
    assert code == 2
    assert not (tmp_path / "new").exists()
    assert "1 to 16, the horizon of csv-missing-cells" in err


@pytest.mark.slow
def test_policy_all_is_every_method_that_suits_the_model(run, tiny, tmp_path):
    code, _, err = run(*quick(tiny, "--policy", "all", "--policy", "klass:window=3", "--out", tmp_path, "--quiet"))
    assert code == 0, err
    document = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    decoded = {line["policy"] for line in document["lines"]} | {left["policy"] for left in document["left_out"]}
    assert {"klass", "eb-sampler", "wino", "core", "info-gain", "klass:window=3"} <= decoded
    assert not {"fixed", "revised", "llada", "dream", "fast-dllm-dream"} & decoded
    assert {line["policy"]: line["label"] for line in document["lines"]}["eb-sampler"] == "reconstruction"
    rows = list(csv.DictReader((tmp_path / "compare.csv").open(encoding="utf-8", newline="")))
    spent = {"steps", "forwards", "extra_forwards", "planner_forwards", "remasks", "processed_tokens", "tokens"}
    assert spent <= set(rows[0])
    assert all(int(row["forwards"]) == int(row["steps"]) + int(row["extra_forwards"]) for row in rows)
    assert any(int(row["extra_forwards"]) for row in rows if row["policy"] == "info-gain")


def test_policy_all_says_what_it_leaves_out(run, tiny_dream, monkeypatch):
    monkeypatch.setattr("unmask.cli.compare.run_comparison", lambda *args, **named: raise_(ConfigError("enough")))
    code, _, err = run(*quick(tiny_dream, "--policy", "all"))
    assert (code, "enough" in err) == (2, True)
    assert "llada, fast-dllm, remdm-llada (its authors' loop for models like llada)" in err
    assert "dream (it is the reference)" in err


def test_json_has_the_time_and_the_file_has_not(run, tiny, tmp_path):
    code, out, _ = run(*quick(tiny, *ALONE, "--json", "--quiet", "--out", tmp_path, "--batch-size", 1))
    document = json.loads(out)
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    timing = json.loads((tmp_path / "timing.json").read_text(encoding="utf-8"))
    assert code == 0
    assert document.pop("timing") == timing
    assert document == summary
    assert summary["format"] == "unmask-compare-summary-2"
    assert [batch["time"]["cold"] for batch in timing["batches"]] == [True, False]
    assert timing["lines"][0]["batches"] == 1
    again = run(*quick(tiny, *ALONE, "--out", tmp_path, "--batch-size", 1))[1]
    assert "seconds of 2 batches are of an earlier run\n" in again
    assert json.loads((tmp_path / "summary.json").read_text(encoding="utf-8")) == summary


def test_a_folder_of_an_older_version_is_refused_with_what_to_do(run, tiny, tmp_path):
    arguments = quick(tiny, *ALONE, "--out", tmp_path, "--quiet")
    assert run(*arguments)[0] == 0
    plan = tmp_path / "plan.json"
    plan.write_text(plan.read_text().replace("unmask-compare-2", "unmask-compare-1"))
    code, _, err = run(*arguments)
    assert code == 2
    assert "'unmask-compare-1'; allowed: 'unmask-compare-2'" in err
    assert "choose another --out" in err


def test_searches_with_their_controls(run, tiny, tmp_path):
    code, _, _ = run(*quick(tiny, "--policy", "lookum", "--compute-matched", "--out", tmp_path, "--quiet"))
    assert code == 0
    document = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    arms = ["reference", "lookum", "base of lookum", "best of n like lookum"]
    assert [line["policy"] for line in document["macro"] or document["lines"]] == arms
    assert document["config"]["matched_n"]["best of n like lookum"][CSV] >= 1


def test_controls_without_a_search_are_refused(run, tiny):
    code, _, err = run(*quick(tiny, *ALONE, "--compute-matched"))
    assert code == 2
    assert "--compute-matched is given without a search" in err


def test_a_task_of_ones_own_needs_no_split(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"prompt": letter, "target": letter}) for letter in "abcd"]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines), encoding="utf-8")
    own = ("--model", "exact", "--task", "mine.jsonl", "--scorer", "exact", "--max-new-tokens", 4)
    code, out, err = run(*own, *ALONE, "--json", "--quiet")
    assert code == 0, err
    assert json.loads(out)["split"] == "validation"


@pytest.mark.parametrize("more", [[], ["--scorer", "exact"], ["--scorer", "exact", "--max-new-tokens", "4"]])
def test_a_file_that_is_not_there_is_named_first(run, tmp_path, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    code, _, err = run("--model", "exact", "--task", "nosuch.jsonl", *more)
    assert code == 2
    assert "'nosuch.jsonl' cannot be read" in err


def test_the_table_for_a_paper_has_ones_own_method_in_bold(run, tiny, mine, tmp_path):
    assert run(*quick(tiny, "--policy", OWN, "--out", "out", "--quiet"))[0] == 0
    table = (tmp_path / "out" / "table.tex").read_text(encoding="utf-8")
    assert r"\textbf{mine.py:Counted:count=3*} & " in table
    assert "% * a method of your own." in table
    assert r"\begin{tabular}{lrrrrr}" in table
    assert "Counted" in (tmp_path / "out" / "figure.svg").read_text(encoding="utf-8")
    assert (tmp_path / "out" / "figure.pdf").read_bytes().startswith(b"%PDF")
