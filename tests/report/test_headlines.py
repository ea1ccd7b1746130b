"""The one rule from an interval to words, and the sentences of a study."""

import pandas as pd
import pytest

from unmask.report.headlines import answer_questions, conclusion, headline_frame

NAN = float("nan")


@pytest.mark.parametrize(
    ("low", "high", "prompts", "said"),
    [
        (0.1, 0.2, 10, "better"),
        (0.1, 0.2, 9, "hint of better: too few prompts"),
        (-0.2, -0.1, 10, "worse"),
        (-0.2, -0.1, 0, "hint of worse: too few prompts"),
        (0.0, 0.2, 10, "not significant"),
        (-0.1, 0.0, 3, "not significant"),
        (NAN, NAN, 10, "not known: no prompt was judged"),
    ],
)
def test_what_an_interval_allows_to_say(low, high, prompts, said):
    assert conclusion(low, high, prompts) == said
    assert conclusion(low, high, prompts, shut=True) == "never deviates"


def settings(*rows, chance=0.0):
    """Model, place, value, low, high, prompts."""
    frame = pd.DataFrame(rows, columns=["model", "place", "value", "low", "high", "prompts"])
    return frame.assign(extension=False, chance=chance, shut=False, also=float("inf"))


MUCH = settings(
    ("m", "score on a", 0.2, 0.1, 0.3, 12),
    ("m", "score on b", 0.5, 0.3, 0.7, 4),
    ("m", "region on a", -0.2, -0.3, -0.1, 12),
    ("n", "score on a", 0.0, -0.1, 0.1, 12),
)


class TestHeadlines:
    def test_settings_are_counted_by_model(self):
        frame = headline_frame({"opportunity": MUCH}).set_index("model")
        counts = frame[["looked_at", "shown", "hints", "below"]]
        assert counts.loc["m"].tolist() == [3, 1, 1, 1]
        assert counts.loc["n"].tolist() == [1, 0, 0, 0]
        # The largest of what was shown, not of hints.
        assert (frame.loc["m", "largest"], frame.loc["m", "place"]) == (0.2, "score on a")

    def test_chance_is_what_nothing_would_give_and_both_numbers_must_beat_it(self):
        auroc = settings(("m", "x", 0.7, 0.6, 0.8, 12), ("m", "y", 0.9, 0.8, 1.0, 12), chance=0.5)
        auroc.loc[1, "also"] = 0.4
        frame = headline_frame({"ranking": auroc})
        assert frame[["shown", "place"]].iloc[0].tolist() == [1, "x"]

    def test_an_extension_has_a_row_of_its_own(self):
        both = pd.concat([MUCH[:1], MUCH[:1].assign(extension=True)])
        frame = headline_frame({"one step": both})
        assert frame["extension"].tolist() == [False, True]
        assert frame["question"].iloc[1].endswith("(revision extension)")


class TestAnswers:
    def answer(self, question, headlines, held=(), asked=True):
        return dict(answer_questions(headlines, held, asked=asked))[question]

    def test_how_much(self):
        said = self.answer("How much?", headline_frame({"opportunity": MUCH}))
        assert said == (
            "Yes, there is something to gain: on 1 of 4 task-axis pairs, in one step 0.2000 of a utility from 0 to 1 "
            "at most."
        )
        hint = self.answer("How much?", headline_frame({"opportunity": MUCH[1:2]}))
        assert hint == "Perhaps: 1 of 1 task-axis pair hint at a gain, on too few prompts."
        assert self.answer("How much?", headline_frame({"opportunity": MUCH[3:]})).startswith("No gain was shown")
        assert self.answer("How much?", headline_frame({})).startswith("Not known")

    def test_whole_answers_count_more_than_steps(self):
        steps = settings(("m", "x", 0.2, 0.1, 0.3, 12))
        one = self.answer("Does acting pay?", headline_frame({"one step": steps}))
        assert one == "One step at a time, yes on 1 of 1 task-axis pair; whole answers were not decoded."
        whole = settings(("m", "2 tasks", -0.2, -0.3, -0.1, 12), ("n", "1 task", 0.0, 0.0, 0.0, 0))
        whole.loc[1, "shut"] = True
        said = self.answer("Does acting pay?", headline_frame({"one step": steps, "whole answers": whole}))
        assert said == (
            "No, it costs: adapting changes the utility of whole answers by -0.200 (2 tasks with m); No: validation "
            "prompts gave no gate a reason to open, so nothing is adapted (1 task with n)."
        )
