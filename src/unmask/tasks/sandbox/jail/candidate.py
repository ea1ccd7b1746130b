"""The function under test, as the tests see it."""

import builtins
from typing import Any

from . import values
from .pipes import ANSWER_BYTES, read_frame, send_frame

GONE = "the completion's process ended or closed its files"


class Lost(BaseException):
    """The worker no longer answers. Not an `Exception`: tests that expect one must not swallow it."""


class Unsendable(BaseException):
    """The tests pass something that cannot cross the pipe."""


class Candidate:
    """The function under test, as the tests see it: each call is a question to the worker."""

    def __init__(self, worker: int, calls_in: int, answers_out: int):
        self.worker, self.calls_in, self.answers_out = worker, calls_in, answers_out
        self.answered = 0
        self.raised: BaseException | None = None
        self.lost = ""
        self.unsendable = ""

    def __call__(self, *args: object, **kwargs: object) -> Any:
        try:
            question = values.dumps([list(args), kwargs], strict=True)
        except values.BadValue as error:
            self.unsendable = f"the tests pass {error}, which the sandbox cannot hand to the completion"
            raise Unsendable from None
        return self.ask(question)

    def ask(self, question: bytes | None = None) -> Any:
        """Send a question, if there is one, and wait for an answer."""
        if self.lost:
            raise Lost
        try:
            if question is not None:
                send_frame(self.calls_in, question)
            data = read_frame(self.answers_out, ANSWER_BYTES)
            if not data:
                raise BrokenPipeError
            answer = values.loads(data)
            outcome, content = answer
            error = revive(*content) if outcome == "raise" else None
        except BrokenPipeError:
            self.lost = GONE
        except (values.BadValue, ValueError, TypeError, MemoryError) as wrong:
            self.lost = f"the completion's process sent an answer that is no answer: {wrong}"
        if self.lost:
            raise Lost
        self.answered += 1
        if error is not None:
            self.raised = error
            raise error
        return content


def revive(names: list[str], message: str) -> BaseException:
    """An exception like the one the completion raised: its nearest built-in class."""
    classes = [getattr(builtins, name, None) for name in names]
    kind = next((k for k in classes if isinstance(k, type) and issubclass(k, BaseException)), Exception)
    try:
        error = kind(message)
    except TypeError:
        error = Exception(message)
    # So that the detail can name a class of the completion's own.
    error.__notes__ = [f"{names[0]}: {message}"]
    return error
