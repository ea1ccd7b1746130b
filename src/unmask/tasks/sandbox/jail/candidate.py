"""The function under test, as the tests see it."""

from typing import Any

from . import values
from .pipes import ANSWER_BYTES, describe, read_frame, send_frame

GONE = "the completion's process ended or closed its files"


class Lost(BaseException):
    """The worker no longer answers. Not an `Exception`: tests that expect one must not swallow it."""


class Unsendable(BaseException):
    """The tests pass something that cannot cross the pipe."""


class Candidate:
    """The function under test, as the tests see it: each call is a question to the worker."""

    def __init__(self, worker: int, calls_in: int, answers_out: int):
        self.worker, self.calls_in, self.answers_out = worker, calls_in, answers_out
        self.called = False
        self.raised: list[BaseException] = []
        self.lost = ""
        self.unsendable = ""

    def __call__(self, *args: object, **kwargs: object) -> Any:
        try:
            question = values.dumps([list(args), kwargs], strict=True)
        except values.BadValue as error:
            self.unsendable = f"the tests pass {error}, which the sandbox cannot hand to the completion"
            raise Unsendable from None
        self.called = True
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
            outcome, content = values.loads(data)
            if outcome != "return" and not (outcome == "raise" and isinstance(content, BaseException)):
                raise values.BadValue("neither returned nor raised")
        except BrokenPipeError:
            self.lost = GONE
        except Exception as wrong:
            self.lost = f"the completion's process sent an answer that is no answer: {describe(wrong)}"
        if self.lost:
            raise Lost
        if outcome == "raise":
            self.raised.append(content)
            raise content
        return content

    def swallowed(self) -> BaseException | None:
        """An exception of the completion that no `except` or `with` met, because a built-in function kept it.

        `list(map(candidate, ...))` takes `StopIteration` for the end of the list, `hasattr` an `AttributeError` for no.
        """
        return next((error for error in self.raised if not was_met(error)), None)


def was_met(error: BaseException) -> bool:
    """Whether some frame that an exception went through has a handler there, by the frame's table of handlers."""
    step = error.__traceback__
    while step:
        if any(start <= step.tb_lasti < end for start, end in guarded_ranges(step.tb_frame.f_code.co_exceptiontable)):
            return True
        step = step.tb_next
    return False


def guarded_ranges(table: bytes) -> list[tuple[int, int]]:
    """The byte code inside `try` and `with`: numbers of six bits a byte, four to an entry, start and length first."""
    numbers, number = [], 0
    for byte in table:
        number = number << 6 | byte & 63
        if not byte & 64:
            numbers.append(number)
            number = 0
    return [(2 * start, 2 * (start + length)) for start, length in zip(numbers[::4], numbers[1::4], strict=False)]
