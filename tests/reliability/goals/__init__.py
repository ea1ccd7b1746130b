"""The goals, by name. A module each."""

from tests.reliability.case import Goal
from tests.reliability.goals import answers, bits, bookkeeping, commands, disks, files, kills, pages

GOALS: dict[str, Goal] = {
    module.GOAL.name: module.GOAL for module in (kills, disks, bits, bookkeeping, answers, files, commands, pages)
}
