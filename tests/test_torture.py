"""The torture sees what it should see: failures, cases that hang or crash, pages on which something is alive."""

import time

from tests.helpers.cases import each_case
from tests.torture.__main__ import report
from tests.torture.case import Case, Failure, Goal
from tests.torture.flips import DAMAGE, edited, flip
from tests.torture.judges import csv_faults, html_faults, latex_faults, markdown_faults
from tests.torture.process import Ended
from tests.torture.runner import Tally, torture


def goal(name, try_case, **how) -> Goal:
    return Goal(name, "made up", try_case, **{"sample": 3, **how})


def odd(case, folder, made):
    return Failure(f"{case.number} is odd") if case.number % 2 else None


def breaks(case, folder, made):
    raise KeyError("a mistake of the torture's own")


def sleeps(case, folder, made):
    time.sleep(60)


def writes(case, folder, made):
    (folder / "file").write_text(str(case.rng.random()))
    return Failure((folder / "file").read_text())


def run(tmp_path, *goals: Goal, seed=3, minutes=None) -> dict[str, Tally]:
    return {tally.goal.name: tally for tally in torture(goals, seed, tmp_path, minutes=minutes)}


def test_failures_are_counted_and_told_with_how_to_repeat_them(tmp_path):
    tallies = run(tmp_path, goal("odd", odd), goal("breaks", breaks, sample=1))
    assert (tallies["odd"].tried, len(tallies["odd"].failures)) == (3, 1)
    (case, failure), *_ = tallies["breaks"].failures
    assert "a mistake of the torture's own" in failure.what
    text = "\n".join(report(list(tallies.values()), 3, 1.0))
    assert case.again == "python -m tests.torture --only breaks --case 0 --seed 3"
    assert case.again in text
    assert "2 failures in 4 cases" in text
    assert not list(tmp_path.iterdir()), "folders of cases are left behind"


def test_a_case_that_hangs_is_a_failure(tmp_path):
    (found,) = run(tmp_path, goal("sleeps", sleeps, sample=1, seconds=0.2))["sleeps"].failures
    assert found[1].what.startswith("hung")


def test_the_same_seed_gives_the_same_cases(tmp_path):
    def numbers(seed):
        return sorted(
            failure.what for _, failure in run(tmp_path, goal("writes", writes), seed=seed)["writes"].failures
        )

    assert numbers(3) == numbers(3) != numbers(4)


def test_what_cannot_be_tried_here_is_listed(tmp_path):
    tallies = run(tmp_path, goal("odd", odd, not_run=lambda: ["no such wall"]))
    assert "not run: no such wall" in report(list(tallies.values()), 3, 1.0)


def test_minutes_bound_a_run(tmp_path):
    assert run(tmp_path, goal("odd", odd, sample=0), minutes=0.01)["odd"].tried >= 1


@each_case(
    ("ended", "fine"),
    [
        (Ended(0, "done", ""), True),
        (Ended(2, "", "error: x is 3; allowed: 4; change it"), True),
        (Ended(2, "", ""), False),
        (Ended(1, "", "error: unexpected KeyError: 'x'"), False),
        (Ended(1, "", "Traceback (most recent call last):"), False),
        (Ended(-11, "", ""), False),
        (Ended(70, "", "what"), False),
        (Ended(0, "", "", hung=True), False),
    ],
)
def test_how_a_command_may_end(ended, fine):
    assert (ended.trouble == "") == fine


def test_a_flip_is_one_bit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(16))
    flip(path, Case("bits", 0, 0).rng)
    assert sum(byte.bit_count() for byte in path.read_bytes()) == 1


def test_damage_changes_files():
    text, rng = b'{"a": 1, "b": [2, 3]}\n' * 9, Case("files", 0, 0).rng
    for name, damage in DAMAGE.items():
        assert any(damage(text, rng) != text for _ in range(5)), name
    value = {"a": {"b": [1, 2]}, "c": "d"}
    assert all(edited(value, rng) != value for _ in range(20))
    assert value == {"a": {"b": [1, 2]}, "c": "d"}


@each_case(
    ("judge", "good", "bad"),
    [
        (lambda text: html_faults(text, 0), "<p title='&lt;b>'>&lt;x-torture></p>", "<x-torture>"),
        (lambda text: html_faults(text, 0), "<a href='#x'>on</a>", "<a onclick='x'>"),
        (lambda text: html_faults(text, 0), "<p>javascript:x()</p>", "<a href=' JavaScript:x()'>"),
        (lambda text: html_faults(text, 1), "<script>1</script>", "<script>1</script><script>2</script>"),
        (lambda text: csv_faults("t.csv", text), 'a,b\n"1,\n2",3\n', "a,b\n1,\n2,3,4\n"),
        (lambda text: latex_faults("t.tex", text), r"\textbackslash{}input\_x $-$3 \& \% \\", r"\input{x}"),
        (lambda text: latex_faults("t.tex", text), "% a comment\n1 & 2", "50 % & 2"),
        (lambda text: markdown_faults("t.md", text), "| a |\n|---|\n| x\\|y |", "| a |\n|---|\n| x|y |"),
    ],
)
def test_judges_of_pages_tell_good_from_bad(judge, good, bad):
    assert not list(judge(good))
    assert list(judge(bad))
