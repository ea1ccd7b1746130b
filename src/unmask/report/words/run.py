"""What was run, on what, for how long and with which command, and what is missing, in a few words each."""

from collections.abc import Iterator

from unmask.lab.analysis.opportunity import OpportunityFindings
from unmask.lab.store import Store
from unmask.report.formats import counted
from unmask.report.words.phrases import listed, model_name


def command(findings: OpportunityFindings, store: Store | None) -> tuple[str, ...]:
    """What made the numbers, in lines. A store does not know the file of its study, but which study it is."""
    folder = "FOLDER" if store is None else str(store.folder)
    made_of = f"FILE: study {findings.name}, fingerprint {findings.manifest['fingerprint'][:12]}"
    return (f"unmask study run FILE --out {folder}", made_of)


def set_aside(store: Store | None) -> Iterator[str]:
    """Work that failed so often that the study goes on without it."""
    for failure in [] if store is None else store.failures.set_aside():
        yield (
            f"Set aside after {counted(failure.attempts, 'attempt')}: {failure.name}: {failure.error}. Correct that; "
            "`unmask study run` with --retry-failed tries it again."
        )


def what_was_run(findings: OpportunityFindings, store: Store | None) -> dict[str, str]:
    """For the first screen."""
    study = findings.manifest["study"]
    prompts = {role: f"{part['prompts']} {role}" for role, part in study["splits"].items()}
    states = sum(extent.states for extent in findings.extents)
    return {
        "models": listed([f"{model_name(findings, s['name'])}, {s['reference']} reference" for s in study["models"]]),
        "tasks": f"{len(study['tasks'])}: {', '.join(study['tasks'])}",
        "axes": ", ".join(study["axes"]),
        "prompts of a task": ", ".join(prompts.values()),
        "tried": f"{findings.branches:,} futures of {states:,} states",
        "time": _time(findings, store),
        "missing": _missing(findings),
    }


def _time(findings: OpportunityFindings, store: Store | None) -> str:
    branching = sum(cost.seconds for cost in findings.costs)
    whole = 0.0 if store is None else sum(float(info.get("seconds", 0)) for info in store.infos("decodes").values())
    on = sorted({str(about["device"]) for about in findings.manifest["models"].values() if about.get("device")})
    parts = [f"{_span(branching)} of branching"] + [f"{_span(whole)} of whole answers"] * bool(whole)
    return f"{' and '.join(parts)}{f' on {listed(on)}' if on else ''}"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def _missing(findings: OpportunityFindings) -> str:
    """Nothing, or how much of what."""
    there = sum(extent.shards for extent in findings.extents)
    planned = [extent.planned for extent in findings.extents]
    parts = []
    if not findings.complete:
        of = f" of {sum(n for n in planned if n is not None)}" if None not in planned else ""
        parts.append(f"the study is not complete: {there}{of} shards are finished")
    if findings.missing:
        parts.append(f"{counted(len(findings.missing), 'model-task-axis cell')} without numbers")
    if lost := sum(u.branches for u in findings.unjudged):
        parts.append(f"{lost:,} futures that could not be judged")
    return "; ".join(parts) or "nothing"
