"""Where calls with a model run: one interface for this process and for the workers of a Ray cluster.

A call is `function(model, *arguments)`. Each process that runs calls loads the model from its spec once, and keeps it
until a call names another one. A study asks an executor for everything that needs a model, and does the rest itself.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

import torch

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Shared(Protocol[T_co]):
    """A value that many calls read. It is sent to each process once; `open` returns that process's own copy."""

    def open(self) -> T_co: ...


class Executor(Protocol):
    """Runs calls in processes that have a model. Calls must be deterministic: a cluster may run one twice."""

    is_local: bool
    """True if calls run in this process, where callbacks among their arguments can be called."""

    @property
    def workers(self) -> int:
        """Number of processes with a model that may run calls at the same time."""
        ...

    @property
    def ahead(self) -> int:
        """Number of calls to submit ahead of their results, so that no process waits for the driver."""
        ...

    def share(self, value: T) -> Shared[T]:
        """Prepare a value that many calls read."""
        ...

    def submit(
        self, function: Callable[..., Any], spec: Any, *arguments: Any, then: Callable[[Any], Any] | None = None
    ) -> "Future[Any]":
        """Call `function(model, *arguments)` with the model of `spec`, then `then(result)` where no model is needed."""
        ...

    def submit_without_model(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Call `function(*arguments)` on any processor core."""
        ...

    def run_in_driver(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Run in this process a function that submits calls itself and waits for their results."""
        ...


def run_in_order(
    executor: Executor, function: Callable[..., Any], spec: Any, calls: Iterable[Sequence[Any]]
) -> Iterator[Any]:
    """Yield the results of many calls in their order. Only a few calls are begun before their results are asked for."""
    remaining, begun = iter(calls), deque["Future[Any]"]()
    while True:
        while len(begun) < executor.ahead and (arguments := next(remaining, None)) is not None:
            begun.append(executor.submit(function, spec, *arguments))
        if not begun:
            return
        yield begun.popleft().result()


class DaemonThread:
    """A thread that runs calls one after the other.

    The program does not wait for it when it ends, unlike for a `ThreadPoolExecutor`: a user's scorer may never return.
    """

    def __init__(self, name: str):
        self.name = name
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, call: Callable[[], Any], outcome: "Future[Any] | None" = None) -> "Future[Any]":
        """Run a call after those that were submitted before; its result goes into `outcome` or a new future."""
        outcome = outcome or Future()
        self._calls.put((call, outcome))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()
        return outcome

    def close(self) -> None:
        """End the thread after the calls that were submitted."""
        self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            call, outcome = item
            if not outcome.set_running_or_notify_cancel():
                continue
            try:
                outcome.set_result(call())
            # Whatever it is: the thread that waits for the future would wait for ever.
            except BaseException as error:
                outcome.set_exception(error)


def run_to_future(outcome: "Future[Any]", call: Callable[[], Any]) -> None:
    """Run a call and put its result or its error into a future."""
    try:
        outcome.set_result(call())
    # SystemExit too: a user's function that ends the program must not end a study.
    except (Exception, SystemExit) as error:
        outcome.set_exception(error)


@dataclass(frozen=True)
class LocalValue(Generic[T]):
    """A shared value that never leaves this process."""

    value: T

    def open(self) -> T:
        return self.value


class LocalExecutor:
    """Runs calls in this process, each before `submit` returns; what needs no model runs in a thread meanwhile."""

    is_local = True
    workers = 1
    ahead = 1

    def __init__(self, load: Callable[[Any], Any]):
        self._load = load
        self._loaded: tuple[Any, Any] | None = None
        self._thread = DaemonThread("scoring")

    def __enter__(self) -> "LocalExecutor":
        return self

    def __exit__(self, *details: object) -> None:
        self._thread.close()

    def share(self, value: T) -> LocalValue[T]:
        return LocalValue(value)

    def submit(
        self, function: Callable[..., Any], spec: Any, *arguments: Any, then: Callable[[Any], Any] | None = None
    ) -> "Future[Any]":
        outcome: Future[Any] = Future()
        run_to_future(outcome, lambda: function(self._model(spec), *arguments))
        if then is None or outcome.exception() is not None:
            return outcome
        result = outcome.result()
        return self._thread.submit(lambda: then(result))

    def submit_without_model(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        outcome: Future[Any] = Future()
        run_to_future(outcome, lambda: function(*arguments))
        return outcome

    # A study waits for what it coordinates anyway.
    run_in_driver = submit_without_model

    def _model(self, spec: Any) -> Any:
        if self._loaded is None or self._loaded[0] != spec:
            # The old model is let go before the new one is loaded: there may be room for one only.
            self._loaded = None
            self._loaded = (spec, self._load(spec))
        return self._loaded[1]


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether memory ran out. PyTorch raises a class of its own on a GPU, and a plain RuntimeError on a CPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    )
