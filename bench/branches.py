"""The branch engine against the network alone, and against its naive twin, in one run.

    python bench/branches.py                              `mini`, and on a GPU a network of LLaDA-8B's shape: about a
                                                          minute; `--profile` says where the host's time goes
    python bench/branches.py --naive                      one prompt of `mini`, merged and naive: minutes on two cores
    python bench/branches.py --linear                     1x, 4x and 16x the states: cost is linear

The first says for each: the steady rate of the network alone at the study's shapes; row-forwards of the engine a second
and their share of it, dummies counted as loss; the share of dummies; and the share of time that is spent between
forwards (statistics, policies, transitions, merging, the host). All axes and diagnostics.

The second tells the saving from identical rollouts (at temperature 0 all rollouts of a branch are one) apart from the
rest, and so the commitment axis, whose revision operator draws random numbers at any temperature.
"""

import argparse
import cProfile
import json
import os
import pstats
import statistics
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import torch

from unmask.axes import AXES, ReMDM
from unmask.catalog import load
from unmask.core import Denoiser, Logits, Needs, View, Vocabulary
from unmask.core.contracts import DenoiserAround
from unmask.denoisers.engines import choose_engine, use_engine
from unmask.denoisers.network import Network
from unmask.denoisers.readout import default_layers
from unmask.denoisers.transformer import Transformer
from unmask.diagnostics import DIAGNOSTICS
from unmask.lab.bench.subject import SHAPES
from unmask.lab.branch import AxisCost, BranchResult, EngineSettings, Plan, run, run_together
from unmask.policies.candidates import candidates, reference_of
from unmask.request import Request, TextModel, begin, generation
from unmask.tasks import examples, find

LLADA_8B = SHAPES["llada-8b"].spec
TASKS = ("csv-missing-cells", "td07-sparse-mask", "multi-span-cloze", "unique-list-commit")
BLOCK = 50
"""Prompts of a shard, as in studies/mini.toml."""


@dataclass
class Counted(DenoiserAround):
    """Counts forwards by shape."""

    denoiser: Denoiser
    calls: Counter[tuple[int, int, bool]] = field(default_factory=Counter)

    def __call__(self, view: View, needs: Needs) -> Logits:
        self.calls[(*view.tokens_BN.shape, needs.attention)] += 1
        return self.denoiser(view, needs)


@dataclass(frozen=True)
class Work:
    """What is branched, and how."""

    name: str
    denoiser: Denoiser
    plan: Plan
    blocks: list[list[Request]]
    settings: EngineSettings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini", help="a name of `unmask models` or a folder")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--prompts", type=int, help="of each task")
    parser.add_argument("--states", type=int, default=8)
    parser.add_argument("--rollouts", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--live", type=int)
    parser.add_argument("--only", choices=("mini", "llada-8b"))
    parser.add_argument("--profile", action="store_true", help="also where the host's time goes")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    parser.add_argument("--naive", action="store_true", help="against the naive engine")
    parser.add_argument("--linear", action="store_true", help="the engine alone on 1x, 4x and 16x the prompts")
    args = parser.parse_args()
    gpu = torch.cuda.is_available()
    if args.naive or args.linear:
        return old_questions(args)
    found: dict[str, Any] = {"machine": machine()}
    print(json.dumps(found["machine"]), flush=True)
    works = [] if args.only == "llada-8b" else [lambda rows=rows: of_mini(args, rows) for rows in mini_rows(args, gpu)]
    works += [lambda: of_llada(args)] if gpu and args.only != "mini" else []
    for make in works:
        # One that fails leaves the others.
        try:
            work = make()
            found[work.name] = measure(work, args.profile)
        except Exception:
            print(traceback.format_exc(), flush=True)
        if args.json:
            args.json.write_text(json.dumps(found, indent=1) + "\n")


def mini_rows(args: argparse.Namespace, gpu: bool) -> list[int]:
    return args.rows or ([512] if gpu else [8])


def of_mini(args: argparse.Namespace, rows: int) -> Work:
    """Prompts of several tasks, in shards as a study has them; few of them on a CPU."""
    gpu = torch.cuda.is_available()
    model = load(args.model, **({"dtype": "bf16"} if gpu else {"device": "cpu"}))
    states, rollouts, tasks = (args.states, args.rollouts, args.tasks) if gpu else (2, 1, args.tasks[:1])
    plan = plan_of(model.reference, states, rollouts, args.temperature)
    requests = [one for task in tasks for one in starts_of(model, task, args.prompts or (128 if gpu else 2))]
    settings = EngineSettings(rows, args.live or (max(4 * rows, 512) if gpu else 2 * rows), bucket=64, waiting=262144)
    return Work(f"mini, {rows} rows", model.denoiser, plan, in_blocks(requests, settings), settings)


def of_llada(args: argparse.Namespace) -> Work:
    """Random weights, whose branches seldom agree, on short canvases: a minute has to do."""
    device = torch.device("cuda:0")
    torch.manual_seed(0)
    model = Transformer.empty(LLADA_8B, device, torch.bfloat16)
    with torch.no_grad():
        for name, values in model.named_parameters():
            torch.nn.init.ones_(values) if "norm" in name else torch.nn.init.normal_(values, std=0.02)
    vocabulary = Vocabulary(LLADA_8B.vocab, 126336, (126081, 126348))
    network = Network(model.requires_grad_(False), vocabulary, 0, default_layers(LLADA_8B.layers))
    network = use_engine(network, choose_engine("auto", device).engine)
    draw, prompt, answer, steps = torch.Generator().manual_seed(0), 112, 16, 8
    requests = [
        Request(
            f"p{at}",
            (*torch.randint(0, 100_000, (prompt,), generator=draw).tolist(), *(vocabulary.mask_id,) * answer),
            (True,) * prompt + (False,) * answer,
            steps,
            (prompt, prompt + answer),
        )
        for at in range(64)
    ]
    settings = EngineSettings(64, live=args.live or 512, bucket=64, waiting=262144)
    return Work("LLaDA-8B's shape", network, plan_of("llada", 2, 1, 0.0), in_blocks(requests, settings, 8), settings)


def plan_of(reference: str, states: int, rollouts: int, temperature: float, *, diagnosed: bool = True) -> Plan:
    sets = candidates(reference)
    return Plan(
        reference=reference_of(sets),
        candidates=sets,
        operator=ReMDM("conf"),
        rollouts=rollouts,
        states=states,
        seed=0,
        temperature=temperature,
        diagnostics={name: DIAGNOSTICS[name]() for name in sets} if diagnosed else {},
    )


def in_blocks(requests: Sequence[Request], settings: EngineSettings, size: int = BLOCK) -> list[list[Request]]:
    """Shards: prompts of one bucket, so many at a time."""
    blocks = []
    for slots in sorted({one.slots(settings.bucket) for one in requests}):
        same = [one for one in requests if one.slots(settings.bucket) == slots]
        blocks += [same[at : at + size] for at in range(0, len(same), size)]
    return blocks


def measure(work: Work, profiled: bool) -> dict[str, Any]:
    """One warm run of the engine beside the network alone at the same shapes."""
    device = work.denoiser.device
    run_together(work.denoiser, replace(work.plan, states=2, rollouts=1), [b[:1] for b in work.blocks], work.settings)
    denoiser = Counted(work.denoiser)
    synchronise(device)
    began = time.perf_counter()
    results = branched(work, denoiser)
    synchronise(device)
    seconds = time.perf_counter() - began
    reports = [result.report for result in results]
    done = sum(report.total.done + report.trajectory + report.recalled for report in reports)
    alone = {shape: forward_alone(work, shape) for shape in denoiser.calls}
    passes = sum(calls * alone[shape] for shape, calls in denoiser.calls.items())
    held = sum(rows * calls for (rows, *_), calls in denoiser.calls.items())
    found = {
        "row_forwards": done,
        "branches": sum(len(own) for result in results for own in result.rollouts),
        "seconds": seconds,
        "network_rows_per_second": held / passes,
        "engine_rows_per_second": done / seconds,
        "share": done / seconds / (held / passes),
        "dummies": 1 - done / held,
        "between_forwards": 1 - passes / seconds,
        "calls": {str(shape): calls for shape, calls in denoiser.calls.items()},
    }
    print(f"{work.name}: {done:,} row-forwards for {found['branches']:,} branches in {seconds:.1f} s")
    print(f"  network alone {held / passes:,.0f} rows/s, engine {done / seconds:,.0f} rows/s: {found['share']:.1%}")
    print(f"  dummies {found['dummies']:.1%}, between forwards {found['between_forwards']:.1%} of the time,", end=" ")
    print(f"{1e6 * (seconds - passes) / done:.1f} us a row-forward; calls {dict(denoiser.calls)}", flush=True)
    if profiled:
        with cProfile.Profile() as noted:
            branched(work, work.denoiser)
        pstats.Stats(noted).sort_stats("tottime").print_stats(40)
    return found


def branched(work: Work, denoiser: Denoiser) -> list[BranchResult]:
    """All shards, group by group."""
    return [one for group in groups_of(work) for one in run_together(denoiser, work.plan, group, work.settings)]


def groups_of(work: Work) -> list[list[list[Request]]]:
    """Shards that a study does together: of one bucket, with no more prompts than a forward has rows."""
    groups: list[list[list[Request]]] = []
    for block in work.blocks:
        last = groups[-1] if groups else []
        same = last and last[0][0].slots(work.settings.bucket) == block[0].slots(work.settings.bucket)
        if not same or sum(map(len, last)) + len(block) > work.settings.rows:
            groups.append([])
        groups[-1].append(block)
    return groups


def forward_alone(work: Work, shape: tuple[int, int, bool]) -> float:
    """Seconds of a forward of one shape, all answer positions masked: the median of some, one after the other."""
    rows, slots, attention = shape
    request = next(one for block in work.blocks for one in block if one.slots(work.settings.bucket) >= slots)
    view = View.of(begin(work.denoiser, [request] * rows, 0, slots).state, Needs())
    needs, device, spent = Needs(attention=attention), work.denoiser.device, []
    for _ in range(8):
        synchronise(device)
        began = time.perf_counter()
        work.denoiser(view, needs)
        synchronise(device)
        spent.append(time.perf_counter() - began)
    return statistics.median(spent[3:])


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def machine() -> dict[str, Any]:
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    engine = choose_engine("auto", device)
    threads = torch.get_num_threads()
    return {"device": name, "torch": torch.__version__, "engine": engine.engine, "why": engine.why, "threads": threads}


# Merged and naive


def old_questions(args: argparse.Namespace) -> None:
    """What merging saves."""
    model = load(args.model)
    plan = plan_of(model.reference, args.states, args.rollouts, args.temperature, diagnosed=False)
    settings = EngineSettings((args.rows or [8])[0], bucket=64)
    if args.linear:
        linear(model, plan, args.tasks[0], args.prompts or 1, settings)
    else:
        compare(model, plan, starts_of(model, args.tasks[0], args.prompts or 1), settings)


def starts_of(model: TextModel, task: str, prompts: int) -> list[Request]:
    about, split = find(task), "development" if prompts <= 16 else "evaluation"
    steps = -(-about.horizon // 2)
    return [generation(model, one.prompt, about.horizon, steps, one.id) for one in examples(task, split)[:prompts]]


def timed(
    model: TextModel, plan: Plan, starts: Sequence[Request], settings: EngineSettings
) -> tuple[BranchResult, float]:
    began = time.perf_counter()
    block = run(model.denoiser, plan, starts, settings)
    return block, time.perf_counter() - began


def compare(model: TextModel, plan: Plan, starts: Sequence[Request], settings: EngineSettings) -> None:
    timed(model, replace(plan, states=1, rollouts=1), starts[:1], settings)  # warm-up
    merged, fast = timed(model, plan, starts, settings)
    naive, slow = timed(model, plan, starts, replace(settings, merge=False))
    assert merged.branches == naive.branches, "the tables differ"
    print(f"{len(merged.branches):,} branches of {len(starts)} prompts, {plan.rollouts} rollouts; equal tables")
    print(f"{'axis':24}{'naive':>10}{'engine':>10}{'fewer':>8}   rollouts apart")
    revising = [axis for axis in merged.report.axes if AXES[axis].revises]
    others = [cost for axis, cost in merged.report.axes.items() if axis not in revising]
    for axis, work in merged.report.axes.items():
        line(axis, work)
    line(f"all but {', '.join(revising)}", sum(others, AxisCost()))
    line("all", merged.report.total)
    total = merged.report.total
    print(f"saved by: rollouts {total.rollouts:,}, first transitions {total.first:,}, ", end="")
    print(f"merged futures {total.futures:,}, nothing left to revise {total.settled:,}")
    filled = (total.done + merged.report.trajectory + merged.report.recalled) / merged.report.calls / settings.rows
    print(f"wall time: naive {slow:.1f} s, engine {fast:.1f} s: {slow / fast:.1f}x; rows filled {filled:.0%}")


def line(name: str, work: AxisCost) -> None:
    """`rollouts apart`: the naive run of one rollout in place of all that are identical."""
    apart = (work.naive - work.rollouts) / work.done
    print(f"{name:24}{work.naive:>10,}{work.done:>10,}{work.naive / work.done:>7.1f}x   {apart:.1f}x")


def linear(model: TextModel, plan: Plan, task: str, prompts: int, settings: EngineSettings) -> None:
    print(f"{'states':>8}{'forwards':>10}{'seconds':>9}{'ms per state':>14}")
    for times in (1, 4, 16):
        block, seconds = timed(model, plan, starts_of(model, task, prompts * times), settings)
        states = sum(len(path.sampled) for path in block.paths)
        print(f"{states:>8,}{block.report.total.done:>10,}{seconds:>9.1f}{1000 * seconds / states:>14.1f}")


if __name__ == "__main__":
    main()
