"""Answers meet the judge that their task declares."""

import json

from unmask.tasks import TASKS, Verdict, examples, score, score_all
from unmask.tasks.own import own
from unmask.tasks.suite import judge_of


def test_an_example_leads_to_the_judge_of_its_task():
    for task in TASKS.values():
        if task.generator:
            assert judge_of(examples(task, "development")[0]) is task.judge


def test_a_task_of_ones_own_declares_its_judge_too(tmp_path):
    lines = [json.dumps({"prompt": f"say {n}", "target": f"{n}"}) for n in range(4)]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines), encoding="utf-8")
    task = own("mine", "mine.jsonl", score="exact", horizon=8, folder=tmp_path)
    assert (task.judge.name, task.utility) == ("exact", "exact")
    assert {judge_of(example) for example in examples(task, "validation")} == {task.judge}


def test_answers_to_several_tasks_are_judged_each_by_its_own():
    several = [examples(name, "development")[0] for name in ("carry-rtl", "csv-missing-cells", "unique-list-commit")]
    answers = [(f"<answer>{example.target}</answer>", example) for example in several]
    heard: list[Verdict] = []
    verdicts = score_all(answers, on_done=heard.append)
    assert verdicts == heard == [score(text, example) for text, example in answers]
    assert [verdict.utility for verdict in verdicts] == [1.0] * 3
    assert score_all([]) == []
