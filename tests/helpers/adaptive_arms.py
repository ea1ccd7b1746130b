"""The arms of one axis, and the joint one, as short calls."""

from collections.abc import Sequence

from unmask.adapt import Adaptive, AlwaysRule, DetectorRule, Diagnostic, RandomRule
from unmask.core import Policy


def always(fixed: Policy, diagnostic: Diagnostic, base: Policy | None = None) -> Adaptive:
    """Every proposal is taken."""
    return Adaptive(fixed, [(diagnostic, AlwaysRule())], base)


def selective(
    fixed: Policy,
    diagnostic: Diagnostic,
    rule: DetectorRule,
    snap_to: tuple[Policy, ...] = (),
    base: Policy | None = None,
) -> Adaptive:
    """Proposals are taken where the detector expects an opportunity."""
    return Adaptive(fixed, [(diagnostic, rule)], base, snap_to)


def random_gate(
    fixed: Policy,
    diagnostic: Diagnostic,
    coverage: float,
    snap_to: tuple[Policy, ...] = (),
    base: Policy | None = None,
) -> Adaptive:
    """A random share of the proposals is taken."""
    return Adaptive(fixed, [(diagnostic, RandomRule(coverage))], base, snap_to)


def joint(fixed: Policy, diagnostics: Sequence[Diagnostic], rules: Sequence[DetectorRule]) -> Adaptive:
    """Several axes, each behind its gate."""
    return Adaptive(fixed, list(zip(diagnostics, rules, strict=True)))
