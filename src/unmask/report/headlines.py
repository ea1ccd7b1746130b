"""The one rule from an interval to words, and the answers of a study: one table, one sentence for each question."""

from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import NamedTuple

import pandas as pd

from unmask.report.table import count_noun
from unmask.stats import FEWEST_PROMPTS

NEVER = "never deviates"
BETTER, WORSE, NOTHING = "better", "worse", "not significant"
HINT_BETTER, HINT_WORSE = "hint of better: too few prompts", "hint of worse: too few prompts"
UNKNOWN = "not known: no prompt was judged"


def conclusion(low: float, high: float, prompts: float, shut: bool = False) -> str:
    """Say what a 95 % interval of a difference allows to say; every table, figure and sentence uses this rule.

    `prompts` are those that the interval rests on: prompts with a gain for single steps, prompts on which the two
    answers differ for whole runs. Fewer than ten make no more than a hint, because such an interval is too short as a
    rule. A gate that is `shut` decodes as the fixed action, so that there is nothing to compare.
    """
    if shut:
        return NEVER
    if isnan(low) or isnan(high):
        return UNKNOWN
    few = prompts < FEWEST_PROMPTS
    if low > 0:
        return HINT_BETTER if few else BETTER
    if high < 0:
        return HINT_WORSE if few else WORSE
    return NOTHING


# The questions


class Question(NamedTuple):
    """A question that every study is asked, and the measure that answers it."""

    name: str
    question: str
    measured: str
    """What the interval is of, for people."""


QUESTIONS = (
    Question("opportunity", "How much?", "Δ_adapt above 0"),
    Question("ranking", "Predictable?", "AUROC above 0.5, for all states and for those with a signal"),
    Question("one step", "Does acting pay, one step at a time?", "lift of the selective policy above 0"),
    Question("whole answers", "Does acting pay, whole answers?", "selective − fixed above 0, mean over tasks"),
    Question("learned", "Does a learned detector help?", "lift at 10 % of states, learned less bins, above 0"),
)


def headline_frame(settings: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return a row for each question and model: settings looked at, shown, hinted at, below, and the largest number.

    `settings` has a frame for each question that the study asks, with the columns model, place, extension, value, low,
    high, chance (what nothing would give), prompts (that the interval rests on), shut and also (a second number's lower
    end that must lie above chance, too).
    """
    rows = []
    for question in (q for q in QUESTIONS if q.name in settings):
        for (model, extension), own in settings[question.name].groupby(["model", "extension"], sort=False):
            ends = zip(
                own["low"] - own["chance"], own["high"] - own["chance"], own["prompts"], own["shut"], strict=True
            )
            words = pd.Series(
                [conclusion(low, high, count, bool(shut)) for low, high, count, shut in ends], index=own.index
            )
            words = words.where((own["also"] > own["chance"]) | ~words.isin([BETTER, HINT_BETTER]), NOTHING)
            known = own[own["value"].notna()]
            # The largest of what was shown; else of the hints; else of all.
            best = next((x for x in (known[words[known.index] == w] for w in (BETTER, HINT_BETTER)) if len(x)), known)
            largest = best.loc[best["value"].idxmax()] if len(best) else pd.Series(dtype=object)
            rows.append(
                {
                    "name": question.name,
                    "question": question.question + " (revision extension)" * extension,
                    "extension": extension,
                    "model": model,
                    "measured": question.measured,
                    "looked_at": len(own),
                    "shown": (words == BETTER).sum(),
                    "hints": (words == HINT_BETTER).sum(),
                    "below": (words == WORSE).sum(),
                    "shut": (words == NEVER).sum(),
                    "conclusion": words.iloc[0] if len(own) == 1 else "",
                    **{
                        f"largest{end}": largest.get(name, nan)
                        for end, name in (("", "value"), ("_low", "low"), ("_high", "high"))
                    },
                    "largest_undefined": 0.0,
                    "place": largest.get("place", ""),
                }
            )
    return pd.DataFrame(rows)


class Answer(NamedTuple):
    """A question that every study is asked, and one sentence that needs no definition."""

    question: str
    verdict: str


def answer_questions(headlines: pd.DataFrame, held: Sequence[float], asked: bool) -> list[Answer]:
    """Return one sentence for each of the four questions, about native decoders.

    `held` are the shares of the gain that the best tenth of states holds, where a gain was shown or hinted at. Nothing
    is `asked` of acting where the study reads no diagnostics.
    """
    native = headlines[~headlines["extension"].astype(bool)] if len(headlines) else headlines
    rows = dict(list(native.groupby("name"))) if len(native) else {}
    answers = [
        Answer("How much?", _say_how_much(rows.get("opportunity"))),
        Answer("How concentrated?", _say_how_concentrated(held)),
    ]
    if not asked:
        return [
            *answers,
            Answer("Predictable?", "Not asked by this study."),
            Answer("Does acting pay?", "Not measured by this study."),
        ]
    return [
        *answers,
        Answer("Predictable?", _say_how_predictable(rows.get("ranking"))),
        Answer("Does acting pay?", _say_whether_acting_pays(rows.get("one step"), rows.get("whole answers"))),
    ]


def _say_how_much(rows: pd.DataFrame | None) -> str:
    if rows is None or not rows["looked_at"].sum():
        return "Not known: nothing could be measured."
    shown, hints, pairs = (
        rows["shown"].sum(),
        rows["hints"].sum(),
        count_noun(rows["looked_at"].sum(), "task-axis pair"),
    )
    if shown:
        most = f"{rows['largest'].max():.4f} of a utility from 0 to 1"
        return f"Yes, there is something to gain: on {shown} of {pairs}, in one step {most} at most."
    if hints:
        return f"Perhaps: {hints} of {pairs} hint at a gain, on too few prompts."
    return f"No gain was shown on any of {pairs}."


def _say_how_concentrated(held: Sequence[float]) -> str:
    if not len(held):
        return "Not known: there is no gain that could be concentrated."
    least, most = (f"{100 * end:.0f} %" for end in (min(held), max(held)))
    share = least if least == most else f"{least} to {most}"
    return f"The best tenth of states holds {share} of the gain; spread evenly it would hold 10 %."


def _say_how_predictable(rows: pd.DataFrame | None) -> str:
    if rows is None:
        return "Not known: no diagnosed setting has numbers."
    shown, hints, pairs = (
        rows["shown"].sum(),
        rows["hints"].sum(),
        count_noun(rows["looked_at"].sum(), "task-axis pair"),
    )
    if shown:
        return f"In part: on {shown} of {pairs} a signal says better than chance where to act."
    if hints:
        return f"Perhaps: {hints} of {pairs} hint at a signal that says where, on too few prompts."
    return f"Not shown: on none of {pairs} does a signal say reliably where there is something to gain."


_WHOLE = {
    BETTER: "Yes: adapting changes the utility of whole answers by {}",
    WORSE: "No, it costs: adapting changes the utility of whole answers by {}",
    HINT_BETTER: "Perhaps: adapting changes the utility of whole answers by {}, but few prompts differ",
    HINT_WORSE: "It seems to cost: adapting changes whole answers by {}, but few prompts differ",
    NOTHING: "Not shown: adapting changes the utility of whole answers by {}, which may be chance",
    NEVER: "No: validation prompts gave no gate a reason to open, so nothing is adapted",
    UNKNOWN: "Not known: no whole answer could be judged",
}


def _say_whether_acting_pays(one_step: pd.DataFrame | None, whole: pd.DataFrame | None) -> str:
    """Say whether acting pays: on whole answers, or on one step where no whole answers were decoded."""
    if whole is not None:
        clauses = []
        for row in whole.itertuples():
            model = f" with {row.model}" if len(whole) > 1 else ""
            clauses.append(f"{_WHOLE[row.conclusion].format(f'{row.largest:+.3f}')} ({row.place}{model})")
        return f"{'; '.join(clauses)}."
    if one_step is None:
        return "Not known: no diagnosed setting has numbers."
    shown, hints, pairs = (
        one_step["shown"].sum(),
        one_step["hints"].sum(),
        count_noun(one_step["looked_at"].sum(), "task-axis pair"),
    )
    if shown:
        return f"One step at a time, yes on {shown} of {pairs}; whole answers were not decoded."
    if hints:
        return f"Perhaps: {hints} of {pairs} hint at it, one step at a time; whole answers were not decoded."
    return "Not shown: no gain of acting, one step at a time; whole answers were not decoded."
