"""What can be done at a state instead of what a run did there, made from names and numbers alone."""

from typing import Any

import torch

from unmask.api import Model
from unmask.axes import score
from unmask.base.errors import ConfigError, UnknownName, require
from unmask.core import Action, Policy, State
from unmask.methods import candidate, candidates, make_policy, with_head
from unmask.models import ExactDenoiser
from unmask.viewer.asked import AskedBranch, Deviation
from unmask.viewer.studies import StudyFolder


def choices(model: Model, name: str, study: StudyFolder | None) -> dict[str, list[str]]:
    """Candidates by axis: the study's own first where the model is one of its, then the usual ones."""
    usual = {axis: list(named) for axis, named in candidates(model.reference).items()}
    if study is None or name not in study.specs:
        return usual
    own = study.choices(name)
    return {axis: list(dict.fromkeys([*own.get(axis, ()), *named])) for axis, named in usual.items()}


def keywords(asked: AskedBranch, model: Model, name: str, state: State, study: StudyFolder | None) -> dict[str, Any]:
    """The deviation as `Model.branch` takes it: an action for one step, or a policy from here on."""
    instead = asked.instead
    if instead.position is not None:
        return {"action": token_by_hand(model, state, instead.position, chosen_token(instead, model))}
    if instead.policy is not None and asked.rest:
        return {"policy": instead.policy, **instead.settings}
    policy = _method(instead, model) if instead.policy is not None else _candidate(instead, model, name, study)
    return {"policy": policy} if asked.rest else {"action": policy}


def token_by_hand(model: Model, state: State, position: int, token: int) -> Action:
    """Reveal this one position, with this token, and nothing else."""
    check_masked(state, position)
    here_BL = torch.zeros_like(state.masked_BL)
    here_BL[0, position] = True
    return Action(
        score.rows("confidence", state),
        here_BL,
        torch.ones(1, device=here_BL.device),
        commit_BL=here_BL,
        tokens_BL=torch.where(here_BL, token, -1),
        rule="confidence",
    )


def check_masked(state: State, position: int) -> None:
    length = int(state.length_B[0])
    masked = position < length and bool(state.masked_BL[0, position])
    left = state.masked_BL[0].nonzero().flatten().tolist()
    allowed = "a masked one: " + ", ".join(map(str, left[:12])) + (", ..." if len(left) > 12 else "")
    require(masked, "position", position, allowed, "choose another, or an earlier step")


def chosen_token(instead: Deviation, model: Model) -> int:
    """A token by its number, or the one that a text is."""
    vocabulary = model.denoiser.vocabulary
    if instead.token is not None:
        ok = instead.token < vocabulary.size and instead.token != vocabulary.mask_id
        require(ok, "token", instead.token, f"0 to {vocabulary.size - 1}, not the mask", "choose another")
        return instead.token
    tokens = model.codec.canvas(instead.text or "")
    if len(tokens) != 1 or tokens[0] == vocabulary.mask_id:
        parts = ", ".join(repr(model.codec.decode([token])) for token in tokens[:8])
        raise ConfigError(
            f"{instead.text!r} is {len(tokens)} tokens ({parts}); allowed: one token, which for most words holds the "
            "space before; choose one of those that are offered, or a part"
        )
    return tokens[0]


def described(asked: AskedBranch, model: Model) -> str:
    """A deviation in words, as the branch's own policy is shown."""
    instead = asked.instead
    if instead.position is not None:
        text = model.codec.decode([chosen_token(instead, model)])
        return f"{text!r} by hand at position {instead.position}"
    what = instead.policy or f"{instead.axis} {instead.candidate}"
    return f"{what} from step {asked.step + 1} on" if asked.rest else f"{what} at step {asked.step + 1}"


def _candidate(instead: Deviation, model: Model, name: str, study: StudyFolder | None) -> Policy:
    assert instead.axis is not None
    assert instead.candidate is not None
    known = choices(model, name, study)[instead.axis]
    if instead.candidate not in known:
        raise UnknownName(f"candidate of {instead.axis}", instead.candidate, known)
    if study is not None and name in study.specs and instead.candidate in study.choices(name).get(instead.axis, ()):
        return study.candidate(name, instead.axis, instead.candidate)
    return candidate(model.reference, instead.axis, instead.candidate)


def _method(instead: Deviation, model: Model) -> Policy:
    """A registered method for one step."""
    made = with_head(
        make_policy(str(instead.policy), **instead.settings),
        model.name,
        model.fingerprint,
        isinstance(model.denoiser, ExactDenoiser),
    )
    if not isinstance(made, Policy):
        raise ConfigError(f"{made.name} owns its loop, so it cannot take one step; allowed: from here on; choose that")
    return made
