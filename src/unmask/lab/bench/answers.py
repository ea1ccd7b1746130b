"""Whole answers: tokens per second, exact and with block caches, beside the authors' loops where there are any."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch

from unmask.core import Denoiser, Policy
from unmask.lab.bench.clock import Effort, Stopwatch, Times, Work, interleaved
from unmask.lab.bench.lines import Found, Line, Ratio
from unmask.lab.bench.outside import OutsideLoop
from unmask.lab.bench.steps import decoding
from unmask.lab.bench.subject import Subject
from unmask.methods import FastDLLM, LLaDA
from unmask.models import BlockCache

DECODE, CACHES = "decode", "caches"
OURS = "llada"
UNCACHED, PREFIX, DUAL = "uncached", "prefix", "dual"
SURE, SURE_DUAL = "uncached, threshold", "dual, threshold"


def measure_decode(
    subject: Subject, batch: int, effort: Effort, clock: Stopwatch, loops: Mapping[str, OutsideLoop]
) -> Found:
    """LLaDA's decoder; a loop from outside reads the same prompts with the same weights."""
    steps = subject.canvas.steps
    prompt = torch.tensor(subject.prompts(batch, subject.canvas.prompt), device=subject.device)
    ours = decoding(subject, subject.network, LLaDA(subject.canvas.block), batch)
    works: dict[str, Work] = {OURS: ours}
    works |= {name: partial(loop, prompt, steps) for name, loop in loops.items()}
    times = interleaved(works, clock, effort)
    lines = {name: _line(DECODE, name, subject, batch, spent, steps) for name, spent in times.items()}
    ratios = [Ratio.between(f"{name} over ours", lines[name], lines[OURS]) for name in loops]
    tokens_BL = ours().state.tokens_BL
    remarks = [_agreement(name, loop, tokens_BL, prompt, steps, subject) for name, loop in loops.items()]
    return Found(tuple(lines.values()), ratios, remarks)


@dataclass(frozen=True)
class _Way:
    denoiser: Denoiser
    policy: Policy


def measure_caches(
    subject: Subject, batch: int, effort: Effort, clock: Stopwatch, loops: Mapping[str, OutsideLoop]
) -> Found:
    """Our caches with both rules; loops from outside by the name of ours that does the same. Those read one row."""
    network, block, steps = subject.network, subject.canvas.block, subject.canvas.answer // 2
    llada, sure = LLaDA(block), FastDLLM(block_length=block)
    ways = {
        UNCACHED: _Way(network, llada),
        PREFIX: _Way(BlockCache(network, "prefix", block), llada),
        DUAL: _Way(BlockCache(network, "dual", block), llada),
        SURE: _Way(network, sure),
        SURE_DUAL: _Way(BlockCache(network, "dual", block), sure),
    }
    works: dict[str, Work] = {
        name: decoding(subject, way.denoiser, way.policy, batch, steps=steps) for name, way in ways.items()
    }
    theirs = {name: f"{loop.label}, {name}" for name, loop in loops.items()} if batch == 1 else {}
    prompt = torch.tensor(subject.prompts(1, subject.canvas.prompt), device=subject.device)
    works |= {label: partial(loops[name], prompt, steps) for name, label in theirs.items()}
    times = interleaved(works, clock, effort)
    lines = {name: _line(CACHES, name, subject, batch, spent) for name, spent in times.items()}
    pairs = {PREFIX: UNCACHED, DUAL: UNCACHED, SURE_DUAL: SURE}
    ratios = [Ratio.between(f"{plain} over {name}", lines[plain], lines[name]) for name, plain in pairs.items()]
    ratios += [Ratio.between(f"{label} over ours", lines[label], lines[name]) for name, label in theirs.items()]
    return Found(tuple(lines.values()), ratios)


def _line(part: str, name: str, subject: Subject, batch: int, spent: Times, steps: int | None = None) -> Line:
    more = {"tokens/s": batch * subject.canvas.answer / spent.median}
    if steps is not None:
        more["ms/step"] = 1e3 * spent.median / steps
    return Line(part, name, batch, "answer", spent, more)


def _agreement(
    name: str, loop: OutsideLoop, ours_BL: torch.Tensor, prompt: torch.Tensor, steps: int, subject: Subject
) -> str:
    theirs_BL = loop(prompt, steps)
    share = float((theirs_BL == ours_BL)[:, subject.canvas.prompt :].float().mean())
    return f"{name}, B {len(prompt)}: {share:.1%} of the tokens are ours, too"
