"""The goals, by name. A module each."""

from tests.torture.case import Goal
from tests.torture.goals import (
    answers,
    bits,
    bookkeeping,
    calls,
    commands,
    disks,
    files,
    kills,
    pages,
    sandbox,
    training,
)

GOALS: dict[str, Goal] = {
    module.GOAL.name: module.GOAL
    for module in (kills, disks, bits, bookkeeping, answers, sandbox, files, commands, calls, pages, training)
}
