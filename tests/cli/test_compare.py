"""`unmask compare` as a user types it, on a tiny checkpoint."""

import csv
import json
import random
import sys
import time

import pytest

from tests.helpers.own_policies import GOOD
from unmask.cli.app import main
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


def test_a_policy_of_ones_own_that_raises_costs_nothing_but_itself(run, tiny, mine):
    code, out, _ = run(*quick(tiny, "--policy", "mine.py:Raises", "--policy", OWN, "--out", "out"))
    assert code == 0
    assert f"{CSV}: without mine.py:Raises (unexpected KeyError" in out
    document = json.loads((mine.parent / "out" / "summary.json").read_text(encoding="utf-8"))
    assert 'KeyError("half a character' in document["left_out"][0]["traceback"]
    assert [line["policy"] for line in document["lines"]] == ["reference", OWN]


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


def test_evaluation_prompts_come_with_a_word(run, tiny, tmp_path):
    code, out, err = run(*quick(tiny, "--split", "evaluation", "--axis", "score", "--out", tmp_path / "a"))
    assert code == 0
    assert "evaluation prompts are for showing a result once" in err
    assert "evaluation prompts" not in out
    picks = tmp_path / "a" / "summary.json"
    code, _, _ = run(*quick(tiny, "--axis", "score", "--policies-from", picks, "--out", tmp_path / "b"))
    assert code == 0
    assert "other prompts" in (tmp_path / "b" / "summary.md").read_text(encoding="utf-8")


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


def test_a_task_of_ones_own_needs_no_split(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"prompt": letter, "target": letter}) for letter in "abcd"]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines), encoding="utf-8")
    own = ("--model", "exact", "--task", "mine.jsonl", "--scorer", "exact", "--max-new-tokens", 4)
    code, out, err = run(*own, *ALONE, "--json", "--quiet")
    assert code == 0, err
    assert json.loads(out)["split"] == "validation"


def test_the_table_for_a_paper_has_ones_own_method_in_bold(run, tiny, mine, tmp_path):
    assert run(*quick(tiny, "--policy", OWN, "--out", "out", "--quiet"))[0] == 0
    table = (tmp_path / "out" / "table.tex").read_text(encoding="utf-8")
    assert r"\textbf{mine.py:Counted:count=3*} & " in table
    assert "% * a method of your own." in table
    assert r"\begin{tabular}{lrrrrr}" in table
    assert "Counted" in (tmp_path / "out" / "figure.svg").read_text(encoding="utf-8")
    assert (tmp_path / "out" / "figure.pdf").read_bytes().startswith(b"%PDF")
