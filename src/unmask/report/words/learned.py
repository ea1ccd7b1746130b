"""Whether a learned detector helps, in plain sentences."""

from collections.abc import Iterator, Sequence

from unmask.lab.analysis.learned import EVERY, LearnedCell, LearnedFindings, LearnedMean
from unmask.lab.analysis.opportunity import OpportunityFindings
from unmask.report.formats import counted, number, share
from unmask.report.tables.learned import LIFT
from unmask.report.tables.shared import FEW
from unmask.report.verdicts import RivalVerdict, rival_verdict
from unmask.report.words.phrases import chance, model_name
from unmask.stats import Estimate

NOTHING_LEARNED = "Whether a learned detector helps is not known: none could be fitted; the tables have the reasons."


def helps(opportunity: OpportunityFindings, learned: LearnedFindings) -> Iterator[str]:
    """One paragraph for each model, on all that its native decoder has; what counts is what acting gains."""
    native = learned.of(extension=False)
    means = [mean for mean in native.means if mean.axis == EVERY]
    if not means:
        yield NOTHING_LEARNED
    for mean in means:
        cells = [cell for cell in native.cells if cell.model == mean.model]
        yield f"{model_name(opportunity, mean.model)}: {_verdict(mean)} {_numbers(mean)} {_tally(cells)}"


def _verdict(mean: LearnedMean) -> str:
    said, ranks = rival_verdict(_difference(mean, *LIFT), mean.unreliable), _difference(mean, "auroc").low > 0
    return {
        RivalVerdict.BETTER: "the learned detector helps.",
        RivalVerdict.HINT_BETTER: f"a hint that the learned detector helps, no more, on {FEW}.",
        RivalVerdict.WORSE: "the learned detector does not help: it does worse than the bins of one signal.",
        RivalVerdict.HINT_WORSE: f"the learned detector does not help: it seems to do worse than the bins, on {FEW}.",
        RivalVerdict.NOTHING: "the learned detector does not help: it ranks states better than the bins of one signal, "
        "but no more is gained by acting on the states it ranks first."
        if ranks
        else "the learned detector does not help: it is not shown to be better than the bins of one signal.",
    }[said]


def _numbers(mean: LearnedMean) -> str:
    """What was found, whatever it says."""
    return (
        f"Learned less bins, the mean over {counted(len(mean.tasks), 'task')} and {counted(mean.settings, 'setting')}: "
        f"lift at 10 % coverage {number(_difference(mean, *LIFT))}, C_det(10 %) "
        f"{share(_difference(mean, 'captured', 0.1))}, AUROC {number(_difference(mean, 'auroc'))}, at the same "
        f"step {number(_difference(mean, 'auroc_within'))}."
    )


def _tally(cells: Sequence[LearnedCell]) -> str:
    verdicts = [rival_verdict(cell.numbers["difference", *LIFT], cell.unreliable) for cell in cells]
    better, worse = verdicts.count(RivalVerdict.BETTER), verdicts.count(RivalVerdict.WORSE)
    return (
        f"Setting by setting, the interval of the lift's difference lies above zero on {better or 'none'} of "
        f"{len(cells)}, below on {worse or 'none'}{chance(len(cells), 'on either side')}."
    )


def _difference(mean: LearnedMean, measure: str, at: float | str = "") -> Estimate:
    return mean.numbers["difference", measure, at]
