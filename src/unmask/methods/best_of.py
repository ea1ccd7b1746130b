"""Best of n, the control of a search: n decodes, of which the most probable answer is kept."""

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from unmask.base.errors import ConfigError
from unmask.core import NO_LOOK_AHEAD, Needs, Policy, Search, SearchContext, State, Trajectory
from unmask.engine import join_rows
from unmask.methods.composed import has_own_input
from unmask.methods.llada import LLaDA
from unmask.methods.search_tools import annotate_last_step, merge_paths


@dataclass(frozen=True)
class BestOf(Search):
    """Decode n times, the first time as the run would and then at a temperature; keep the most probable answer.

    The probability is the model's own: the sum of log p of the tokens when each was revealed. It costs no forward
    beyond those of the n decodes.
    """

    name: ClassVar[str] = "best-of"
    base: Policy = field(default_factory=LLaDA)
    n: Annotated[int, Field(ge=1, le=10_000)] = 4
    """Number of decodes; 1 is the base method."""
    temperature: Annotated[float, Field(gt=0, lt=float("inf"))] = 0.6
    """Temperature of all decodes except the first, which has the run's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        base = self.base
        alone = base.past_steps == 0 and not (base.looks_ahead or base.needs.planner or base.own_end)
        if not alone or has_own_input(base):
            raise ConfigError(
                f"base of best-of is {base.name}; allowed: methods that decide from one prediction of the canvas and "
                "remember nothing, such as llada, fast-dllm or eb-sampler; pick one"
            )

    @property
    def needs(self) -> Needs:
        return self.base.needs

    @property
    def random(self) -> bool:
        return self.n > 1 or self.base.random

    @property
    def steps(self) -> str:
        return self.base.steps

    def check(self, state: State) -> None:
        self.base.check(state)

    def decode(self, context: SearchContext, traj: Trajectory) -> Trajectory:
        best: list[tuple[float, Trajectory]] = []
        dropped: list[list[Trajectory]] = [[] for _ in range(traj.state.batch)]
        annotated: list[Trajectory] = []
        for number in range(self.n):
            for row, path in enumerate(self._decode_once(context, traj, number)):
                value = log_probability(path)
                if number == 0:
                    best.append((value, path))
                elif value > best[row][0]:
                    dropped[row].append(best[row][1])
                    best[row] = value, path
                else:
                    dropped[row].append(path)
            rows = zip(best, dropped, strict=True)
            annotated = [annotate_last_step(path, value, number + 1, others) for (value, path), others in rows]
            context.report_paths(annotated)
        return merge_paths(traj, annotated)

    def _decode_once(self, context: SearchContext, traj: Trajectory, number: int) -> list[Trajectory]:
        """Decode all rows once with the base method: decode 0 has the run's noise and temperature, others their own."""
        # The first decode is the run's own: best of 1 is the base method.
        noise = traj.noise if number == 0 else traj.noise.derive(f"decode/{number}")
        rows_B = torch.arange(traj.state.batch, device=traj.rows_B.device)
        now = replace(traj, noise=noise, rows_B=rows_B, steps=(), prediction=None, config=None)
        parts: list[Trajectory] = []
        temperature = None if number == 0 else self.temperature
        while True:
            open_B = now.state.masked_BL.any(-1)
            if not bool(open_B.all()):
                parts.append(_select_rows(now, ~open_B))
                now = replace(_select_rows(now, open_B), steps=now.steps)
            if now.state.batch == 0:
                break
            prediction = context.predict(now.state, now.rows_B, self.needs, noise=now.noise, temperature=temperature)
            now = replace(now, prediction=prediction)
            now = context.apply_action(now, self.base.name, self.base.act(now, NO_LOOK_AHEAD))
        whole = join_rows(parts, now.steps)
        paths = []
        for row in range(whole.state.batch):
            alone = whole.row(row)
            here_B = torch.full_like(alone.rows_B, row)
            steps = tuple(replace(step, rows_B=here_B) for step in alone.steps)
            paths.append(replace(alone, rows_B=here_B, steps=steps))
        return paths


def _select_rows(traj: Trajectory, chosen_B: Tensor) -> Trajectory:
    """Return these rows without their recorded steps and prediction."""
    return replace(traj, steps=(), prediction=None).select(chosen_B.nonzero().flatten())


def log_probability(path: Trajectory) -> float:
    """Return the sum of the log-probabilities of a path's tokens when they were last revealed.

    Tokens that no model proposed count as certain.
    """
    log_p_BL = torch.zeros_like(path.state.tokens_BL, dtype=torch.float64)
    for step in path.steps:
        # NaN where no model proposed the token. Clamped, because a single probability rounded to 0 would decide alone.
        now_BL = step.confidence_BL.double().clamp(min=1e-30).log().nan_to_num(nan=0.0)
        log_p_BL = torch.where(step.revealed_BL, now_BL, log_p_BL.masked_fill(step.remasked_BL, 0.0))
    return float(log_p_BL.sum())
