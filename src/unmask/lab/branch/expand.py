"""The alternatives' own step: what each does at sampled states, and the rows that go on from there."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, pairwise, product

import numpy as np
import torch

from unmask.adapt import without_deviation_notes
from unmask.core import Action, ModelInput, Needs, Prediction, State, Trajectory
from unmask.engine import Transition
from unmask.lab.branch.accounting import Ledger
from unmask.lab.branch.bucket import Actor, Bucket
from unmask.lab.branch.futures import Departure, FirstStep, FutureTable, settled_rows
from unmask.lab.branch.guests import own_step
from unmask.lab.branch.plan import Continuation
from unmask.lab.branch.pools import selected
from unmask.lab.branch.readings import StoredReading, Taken, diagnose
from unmask.lab.branch.states import joined
from unmask.lab.branch.stepper import OwnStep, Stepper, check_plain, moved_on
from unmask.methods import has_own_input


class Expander:
    """Takes every alternative's action at sampled states and hands the rows to their futures."""

    def __init__(self, bucket: Bucket, stepper: Stepper, futures: FutureTable, ledger: Ledger):
        self.bucket, self.stepper, self.futures, self.ledger = bucket, stepper, futures, ledger
        self.device = stepper.denoiser.device
        self.readings: list[tuple[int, StoredReading]] = []
        """With the index of the state."""
        self.begun = 0
        """States expanded so far."""

    def expand(self, points: list[int]) -> None:
        """Read the diagnostics at some states, and leave each by every alternative and rollout."""
        self.begun += len(points)
        start = joined([self.bucket.points[at].sampled for at in points], self.device)
        start = replace(start, rows_B=torch.arange(len(points), device=self.device))
        for actor in self.bucket.actors:
            _check(actor, start, whole=self.bucket.plan.whole)
        # Only diagnostics read the attention of the step before.
        needs = self.bucket.recalled
        start = self.stepper.recompute_last_step(
            start, needs if self.bucket.plan.diagnostics else replace(needs, attention=False)
        )
        if start.previous_posterior is not None:
            self.ledger.recalled(points)
        if self.futures.merge:
            self._together(points, start)
        else:
            self._each(points, start)

    def _together(self, points: list[int], start: Trajectory) -> None:
        """One forward serves all branches of a state; what nobody draws for is done once for all rollouts."""
        bucket = self.bucket
        inputs = ModelInput.of(start.state, bucket.needs)
        output = self.stepper.forward(inputs, bucket.needs)
        # Booked on the first of them.
        self.ledger.pay(points, 0, [1] * len(points))
        greedy = bucket.plan.temperature == 0
        seen: Trajectory | None = None
        taken: dict[int, OwnStep] = {}
        """By the actor's index; those that nobody draws for stay from rollout to rollout."""
        firsts: dict[int, list[FirstStep]] = {}
        """What those steps did."""
        unpaid: set[int] = set()
        """Of those, what no branch has been charged for yet."""
        drawless: dict[int, Departure] = {}
        """Alternatives that nothing is drawn for, neither by them nor after them: how their branches left."""
        for rollout in range(bucket.plan.rollouts):
            noise = bucket.noise(points, [rollout] * len(points), self.device)
            if seen is None or not greedy:
                seen = self.stepper.add_prediction(replace(start, noise=noise), output, inputs, bucket.needs)
            seen = replace(seen, noise=noise)
            for at, actor in enumerate(bucket.actors):
                if at not in taken or not greedy or actor.policy.random:
                    taken[at] = own_step(self.stepper, actor, seen)
                    firsts[at] = first_steps(seen.state, taken[at].change)
                    unpaid.add(at)
            if rollout == 0:
                self._diagnose(points, seen, [taken[at] for at in bucket.actor_of])
            for alternative, at in enumerate(bucket.actor_of):
                if alternative in drawless:
                    self.futures.repeat(drawless[alternative], rollout)
                    continue
                departure = Departure(alternative, rollout, firsts[at], taken[at].costs, at in unpaid, [])
                self._leave(points, departure, seen, taken[at])
                unpaid.discard(at)
                after = bucket.continuations[bucket.alternatives[alternative].axis].policy
                if not (bucket.draws(bucket.actors[at].policy) or bucket.draws(after)):
                    drawless[alternative] = departure

    def _each(self, points: list[int], start: Trajectory) -> None:
        """Every branch takes its own forward."""
        bucket = self.bucket
        if bucket.plan.diagnostics:
            seen = self._seen(start, points, [0] * len(points))
            self._diagnose(points, seen, [own_step(self.stepper, bucket.actors[at], seen) for at in bucket.actor_of])
        branches = list(product(range(len(bucket.alternatives)), range(bucket.plan.rollouts)))
        rows = [(row, *branch) for branch in branches for row in range(len(points))]
        for at in range(0, len(rows), self.stepper.live):
            batch = rows[at : at + self.stepper.live]
            alone = start.select(torch.tensor([row for row, _, _ in batch], device=self.device))
            seen = self._seen(alone, [points[row] for row, _, _ in batch], [rollout for _, _, rollout in batch])
            for (alternative, rollout), members in groupby(range(len(batch)), key=lambda i: batch[i][1:]):
                rows_of_branch = list(members)
                own = [points[batch[i][0]] for i in rows_of_branch]
                self.ledger.pay(own, alternative, [1] * len(own))
                part = seen.select(torch.tensor(rows_of_branch, device=self.device))
                step = own_step(self.stepper, bucket.actors[bucket.actor_of[alternative]], part)
                firsts = first_steps(part.state, step.change)
                self._leave(own, Departure(alternative, rollout, firsts, step.costs, True, []), part, step)

    def _seen(self, traj: Trajectory, points: list[int], rollouts: list[int]) -> Trajectory:
        """Rows with a forward of their own, under the random numbers of their branches."""
        needs = self.bucket.needs
        traj = replace(traj, noise=self.bucket.noise(points, rollouts, self.device))
        inputs = ModelInput.of(traj.state, needs)
        return self.stepper.add_prediction(traj, self.stepper.forward(inputs, needs), inputs, needs)

    def _diagnose(self, points: list[int], seen: Trajectory, steps: list[OwnStep]) -> None:
        taken: list[Taken] = [(step.action, step.change) for step in steps]
        readings = diagnose(self.bucket, self.stepper, points, seen, taken)
        # Diagnostic by diagnostic, each at all states.
        self.readings += [(points[at % len(points)], reading) for at, reading in enumerate(readings)]

    def _leave(self, points: list[int], departure: Departure, seen: Trajectory, step: OwnStep) -> None:
        """Rows after one alternative's action go on under the continuation of its axis."""
        change, alternative = step.change, departure.alternative
        if departure.ran and any(step.passes):
            self.ledger.pay(points, alternative, step.passes)
        after = self.bucket.continuations[self.bucket.alternatives[alternative].axis]
        actor = self.bucket.actors[self.bucket.actor_of[alternative]]
        # Where the reference read a view of its own, its record says other things than a candidate's of the same step.
        name = actor.policy.name if has_own_input(actor.policy) and not actor.guest else "candidate"
        step = step._replace(action=plain_action(step.action, change))
        for continuation, rows in self._continuations(after, change.state):
            policy = continuation.policy
            past = step._replace(prediction=trimmed(step.prediction, policy.needs)) if policy.past_steps else step
            traj = selected(moved_on(seen, name, past, policy.past_steps), rows)
            whole = len(rows) == len(points)
            own = points if whole else [points[row] for row in rows]
            accounts = [self.ledger.account(point, alternative) for point in own]
            self.futures.join(continuation, traj, own, departure if whole else departure.of(rows), accounts)

    def _continuations(self, after: Continuation, state: State) -> Iterator[tuple[Continuation, list[int]]]:
        """Which rows go on how: where futures are merged, those with nothing to revise under the settled policy."""
        if after.settled is None or not self.futures.merge:
            yield after, list(range(state.batch))
            return
        settled = settled_rows(state)
        for continuation, still in ((after, False), (Continuation(after.settled), True)):
            if rows := [row for row in range(state.batch) if settled[row] == still]:
                yield continuation, rows


def _check(actor: Actor, start: Trajectory, *, whole: bool) -> None:
    """Refuse rules of an axis that read anything but the canvas; the reference may where nothing is cut out of it."""
    policy = actor.policy
    policy.check(start.state)
    if not (actor.guest or whole):
        check_plain(policy, start)


def first_steps(before: State, change: Transition) -> list[FirstStep]:
    """What a transition did, row by row; read from the device in one go."""
    final_BL = change.state.committed_BL & ~before.committed_BL
    parts = (change.revealed_BL, change.remasked_BL, final_BL, change.state.tokens_BL)
    changed = torch.stack([part.to(torch.int32) for part in parts]).cpu().numpy()
    tokens_BL = changed[3]
    # All rows at once: their positions, and from where to where each row's own stand.
    where = [np.nonzero(flags_BL) for flags_BL in changed[:3]]
    ends = [np.searchsorted(row_U, np.arange(len(tokens_BL) + 1)).tolist() for row_U, _ in where]
    lists = [at_U.tolist() for _, at_U in where]
    put = tokens_BL[where[0]].tolist()
    revealed, remasked, committed = (
        [tuple(own[begin:end]) for begin, end in pairwise(bounds)] for own, bounds in zip(lists, ends, strict=True)
    )
    tokens = [tuple(put[begin:end]) for begin, end in pairwise(ends[0])]
    return list(map(FirstStep, revealed, tokens, remasked, committed))


def plain_action(action: Action, change: Transition) -> Action:
    """An action as what it did, so that two ways to the same transition leave the same past."""
    return Action(
        action.alpha_BJ.new_zeros(action.alpha_BJ.shape),
        change.revealed_BL,
        change.revealed_BL.any(-1).to(action.kappa_B.dtype),
        action.commit_BL & change.revealed_BL,
        remask_BL=change.remasked_BL,
        # Without the record of a gate, which no continuation reads.
        notes=without_deviation_notes(action.notes),
    )


def trimmed(prediction: Prediction, needs: Needs) -> Prediction:
    """What the continuation would have asked for, so that rows of all alternatives have one structure."""
    k, draws = max(needs.top_k, 2), needs.draws
    return replace(
        prediction,
        clean=prediction.clean.largest(k),
        filtered=prediction.filtered.largest(k),
        token_BND=prediction.token_BND[..., :draws],
        confidence_BND=prediction.confidence_BND[..., :draws],
        drift_BN=prediction.drift_BN if needs.divergence else None,
        displacement_BN=prediction.displacement_BN if needs.divergence else None,
        attention_BNN=prediction.attention_BNN if needs.attention else None,
        visible_BN=prediction.visible_BN if needs.attention else None,
        hidden_BNH=None,
        posterior=prediction.posterior if needs.divergence or needs.posterior else None,
    )
