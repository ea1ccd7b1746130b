"""A study's tables to findings: what one step could gain, what signals say of it, and what whole answers gain."""

from unmask.lab.analysis.learned import analyse_learned
from unmask.lab.analysis.load import Findings, StudyFrames, read_study, to_frame
from unmask.lab.analysis.runs import analyse_runs
from unmask.lab.analysis.steps import analyse_diagnostics, analyse_methods, analyse_opportunity
from unmask.lab.store import Store
from unmask.stats import RESAMPLES
from unmask.stats.measures import DRAWS


def analyse(store: Store, *, resamples: int = RESAMPLES, draws: int = DRAWS) -> Findings:
    """Compute all findings of a study's finished shards. Experiments that the study lacks have no rows."""
    study = read_study(store)
    opportunity = analyse_opportunity(study, resamples)
    methods = analyse_methods(study, opportunity, resamples)
    diagnostics = analyse_diagnostics(study, opportunity, resamples, draws)
    learned = analyse_learned(study, diagnostics, resamples)
    runs = analyse_runs(study, diagnostics, resamples)
    return Findings(to_frame([*opportunity, *methods, *diagnostics.rows, *learned, *runs]), study, resamples)
