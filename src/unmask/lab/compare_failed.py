"""What of a comparison could not be decoded, and why."""

import traceback
from dataclasses import dataclass

from unmask.base.errors import UnmaskError
from unmask.base.files import storable
from unmask.base.user_code import describe_error, error_location
from unmask.core import Policy, Search

PLACE = "place_on_worker"
"""Where an error from another process keeps the line that raised it."""


@dataclass(frozen=True)
class LeftOut:
    """A policy that could not decode a task, and why."""

    task: str
    policy: str
    reason: str
    traceback: str = ""
    """Of an error that nobody expects, such as one in a policy of a user's own."""


class PolicyFailed(Exception):
    """A policy could not decode a batch, or its answers could not be judged: the cause says why."""

    def __init__(self, cause: BaseException, kind: type[Policy] | type[Search]):
        super().__init__()
        self.cause, self.kind = cause, kind

    def left_out(self, task: str, policy: str) -> LeftOut:
        place = self.cause.__dict__.get(PLACE) or error_location(self.cause, self.kind)
        at = f" ({place})" if place else ""
        if isinstance(self.cause, UnmaskError):
            return LeftOut(task, policy, storable(str(self.cause)) + at)
        trace = storable("".join(traceback.format_exception(self.cause)))
        return LeftOut(task, policy, f"unexpected {describe_error(self.cause)}{at}; --out keeps its traceback", trace)
