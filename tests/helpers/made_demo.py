"""A comparison of policies made by hand: nothing runs a model."""

from unmask.lab.demo import AT_ONCE, MODE, DemoComparison, DemoRow, Reveal


def rows(label, method, utilities, forwards, stderr=0.0):
    """One row for each of two problems."""
    return [
        DemoRow(f"{family}/0", family, label, method, utility, stderr, 4 if stderr else 1, not stderr, forwards, 4)
        for family, utility in zip(("dense", "far"), utilities, strict=True)
    ]


ROWS = [
    *rows(MODE, "", (1.0, 1.0), None),
    *rows(AT_ONCE, "", (0.2, 0.4), 1.0),
    *rows("slow & sure", "llada", (0.9, 0.7), 4.0),
    *rows("slower", "dream", (0.9, 0.7), 5.0),
    *rows("quick", "fixed", (0.8, 0.4), 2.0),
    *rows("dice", "revised", (0.5, 0.5), 4.0, stderr=0.03),
]
REVEALS = (
    Reveal("slow & sure", (0, 1, 2, 3, 4), (0, 0, 0, 0, 0), "abaab", 0.9),
    Reveal("slower", (0, 4, 3, 2, 1), (0, 0, 0, 0, 0), "abaab", 0.9),
    Reveal("quick", (0, 1, 1, 2, 2), (0, 0, 0, 0, 0), "ababb", 0.8),
    Reveal("dice", (0, 4, 2, 3, 4), (0, 1, 0, 0, 2), "aaaab", 0.5),
)
CONFIG = {
    "problems": [
        {
            "name": f"{family}/0",
            "family": family,
            "seed": 0,
            "n": 5,
            "vocab": 2,
            "dependence": 2.0,
            "prompt_length": 1,
        }
        for family in ("dense", "far")
    ],
    "contenders": [
        {"label": reveal.label, "steps": 4, "policy": {"name": "llada", "block_length": None}} for reveal in REVEALS
    ],
    "seeds": 4,
    "temperature": 0.0,
    "versions": {"unmask": "0.0.0", "python": "3.11"},
}
COMPARISON = DemoComparison(tuple(ROWS), "dense/0, prompt 'a'", REVEALS, CONFIG)


def shown_runs():
    """Two runs of the exact model, with what its evaluator might have said; and the records that a page draws."""
    from unmask.api.load import load
    from unmask.lab.demo import DemoRun, ShownMethod
    from unmask.lab.study.prompts import ScoredAnswer
    from unmask.report.run_data import run_data
    from unmask.tasks import Example

    model = load("exact", n=8)
    example = Example("ab<i>c", f"d & e,{'long' * 30}", ("d",), {}, 1, "mine-1", "mine", "evaluation")
    runs, records = [], []
    for label, method, utility in (("LLaDA", "llada", 0.25), ("WINO", "wino", float("nan"))):
        out = model.generate("ab", policy=method)
        shown = ShownMethod(label, method, f"how {label} decides")
        run = DemoRun("mine", example, shown, out.trajectory, ScoredAnswer(out.text, utility, "made <up>"))
        runs.append(run)
        records.append(run_data(out.trajectory, 0, model.codec, prompt=example.prompt, score=run.utility))
    return tuple(runs), records


def results(findings, evidence=None):
    """All that the page shows, around findings made by hand."""
    from unmask.report.demo import DemoResults
    from unmask.report.study import study_report

    runs, records = shown_runs()
    return DemoResults(COMPARISON, runs, records, findings, study_report(findings), evidence)
