"""A run of the bench as plain text: needs no terminal, and no library beyond the measurements' own."""

from collections.abc import Sequence

from unmask.lab.bench.lines import BenchResult, Line, Ratio


def text(result: BenchResult) -> str:
    """Where and what, the ratios, the times that they are made of, and what went wrong."""
    model, machine = result.subject, result.machine
    head = [
        f"{model['name']}: {model['weights']} weights, {model['parameters'] / 1e6:,.1f} M parameters, {model['dtype']}",
        f"prompt {model['prompt']}, answer {model['answer']} in {model['steps']} steps, blocks of {model['block']}",
        f"{machine['device']}; engine {machine['engine']}; {result.seconds:.0f} s in all",
        f"unmask {machine['unmask']} at {machine['commit'] or 'no known commit'}, torch {machine['torch']}, "
        f"triton {machine['triton'] or 'none'}",
    ]
    parts = ["\n".join(head), _ratios(result.found.ratios), _times(result.found.lines)]
    parts += ["\n".join(dict.fromkeys(result.found.remarks))]
    parts += ["\n".join(f"failed: {one.part} at B {one.batch}: {one.why}" for one in result.failures)]
    return "\n\n".join(part for part in parts if part)


def _ratios(ratios: Sequence[Ratio]) -> str:
    rows = [(ratio.part, str(ratio.batch), ratio.name, f"{ratio.value:.2f}", _aim(ratio)) for ratio in ratios]
    return _aligned(("part", "B", "ratio of this run", "value", "aim"), rows)


def _aim(ratio: Ratio) -> str:
    if ratio.target is None:
        return ""
    return f"{'at most' if ratio.at_most else 'at least'} {ratio.target:g}{'' if ratio.met else ': missed'}"


def _times(lines: Sequence[Line]) -> str:
    rows = [
        (
            line.part,
            str(line.batch),
            line.name,
            f"{1e3 * line.times.median:.3f}",
            f"{1e3 * line.times.low:.3f} to {1e3 * line.times.high:.3f}",
            line.per,
            ", ".join(f"{name} {_number(value)}" for name, value in line.more.items()),
        )
        for line in lines
    ]
    return _aligned(("part", "B", "what", "median ms", "spread", "of one", "beside it"), rows)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


_RIGHT = ("B", "value", "median ms")


def _aligned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they must be, numbers to the right; nothing without rows."""
    if not rows:
        return ""
    widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if head in _RIGHT else cell.ljust(width)
            for head, cell, width in zip(heads, row, widths, strict=True)
        ).rstrip()
        for row in (heads, *rows)
    )
