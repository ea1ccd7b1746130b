"""The branch engine against its naive twin, in one run: row-forwards, wall time, and the same tables.

    python bench/branches.py                              one prompt of `mini`: four minutes on two cores, all but
                                                          seconds of them for the naive engine
    python bench/branches.py --linear                     1x, 4x and 16x the states: cost is linear

The saving from identical rollouts (at temperature 0 all rollouts of a branch are one) is told apart from the rest, and
so is the commitment axis, whose revision operator draws random numbers at any temperature.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from unmask.axes import AXES, ReMDM
from unmask.catalog import load
from unmask.lab.branch import AxisCost, BranchResult, EngineSettings, Plan, run
from unmask.lab.run.jobs import request_of
from unmask.policies.candidates import candidates, reference_of
from unmask.request import Request, TextModel
from unmask.tasks import examples, find


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini", help="a name of `unmask models` or a folder")
    parser.add_argument("--task", default="csv-missing-cells")
    parser.add_argument("--prompts", type=int, default=1)
    parser.add_argument("--states", type=int, default=8)
    parser.add_argument("--rollouts", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--linear", action="store_true", help="the engine alone on 1x, 4x and 16x the prompts")
    args = parser.parse_args()
    if torch.get_num_threads() > 1 and not torch.cuda.is_available():
        print(f"{torch.get_num_threads()} threads")
    model = load(args.model)
    sets = candidates(model.reference)
    plan = Plan(
        reference=reference_of(sets),
        candidates=sets,
        operator=ReMDM("conf"),
        rollouts=args.rollouts,
        states=args.states,
        seed=0,
        temperature=args.temperature,
    )
    settings = EngineSettings(args.rows, bucket=64)
    if args.linear:
        linear(model, plan, args.task, args.prompts, settings)
    else:
        compare(model, plan, starts_of(model, args.task, args.prompts), settings)


def starts_of(model: TextModel, task: str, prompts: int) -> list[Request]:
    steps = -(-find(task).horizon // 2)
    return [request_of(model, find(task), steps, example) for example in examples(task, "development")[:prompts]]


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
