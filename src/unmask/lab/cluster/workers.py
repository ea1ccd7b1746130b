"""What runs on the nodes: workers, which hold a model, and helpers, which need no device.

Nothing of Ray is loaded here: `pool` makes actors of these.
"""

import importlib
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from unmask.base.errors import UnmaskError
from unmask.lab.cluster.carry import CarriedFile, Parcel, lay_out, packed
from unmask.lab.cluster.connect import ray_module
from unmask.lab.cluster.identity import identity


@dataclass(frozen=True)
class Setup:
    """What every worker gets once, through the object store."""

    parcel: Parcel
    """Of the function that loads a model, and of a value that the work reads."""
    threads: int
    """That torch computes with, as in the driver: last bits may follow."""

    @classmethod
    def of(cls, load: Callable[[Any], Any], value: Any = None) -> "Setup":
        """`load` makes a model of what `WorkerContext.model` is given; `value` is any value, a study for example."""
        return cls(packed((load, value)), torch.get_num_threads())


@dataclass
class WorkerContext:
    """What a function on a worker has: the models, one at a time, and what all the work shares."""

    load: Callable[[Any], Any]
    value: Any
    now: Any = None
    """What the function says of where it stands; the driver asks now and then."""
    _kept: tuple[Any, Any] | None = field(default=None, repr=False)
    _counters: dict[str, Any] = field(default_factory=dict, repr=False)

    def model(self, spec: Any) -> Any:
        """Loaded once, and kept until another is asked for."""
        if self._kept is None or self._kept[0] != spec:
            self._kept = None
            self._kept = (spec, self.load(spec))
        return self._kept[1]

    def tell(self, now: Any) -> None:
        """Where the work at hand stands."""
        self.now = now

    def count(self, name: str, more: int) -> None:
        """Add to a counter that Ray's dashboard and its exporter show. What cannot be shown stops nothing."""
        with suppress(Exception):
            if name not in self._counters:
                metrics = importlib.import_module("ray.util.metrics")
                self._counters[name] = metrics.Counter(name, name.replace("_", " "))
            self._counters[name].inc(more)


class CallOutcome(NamedTuple):
    """How a call ended; small, and apart from what it returned."""

    error: BaseException | None
    seconds: float


class WorkerActor:
    """One worker: first it says what it is, then it gets ready. Functions are called one at a time; `look` may come
    in between."""

    def hello(self) -> tuple[dict[str, str], str]:
        """What it computes with, and the node it is on."""
        return identity(), ray_module().get_runtime_context().get_node_id()

    def prepare(self, setup: Setup) -> None:
        """Open what was sent: only a worker with the same code is sure to understand it."""
        load, value = setup.parcel.open()
        self.threads = setup.threads
        self.context = WorkerContext(load, value)

    def look(self) -> Any:
        """Where the work at hand stands."""
        return self.context.now

    def run(self, function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[CallOutcome, Any]:
        """A function of the context and its arguments: how it ended, and its result."""
        # Of this thread: each has its own number.
        torch.set_num_threads(self.threads)
        self.context.now = None
        return _outcome(lambda: function(self.context, *arguments))


class HelperActor:
    """Work without a device, beside the workers."""

    def __init__(self, files: tuple[CarriedFile, ...]):
        lay_out(files)

    def run(self, function: Callable[..., Any], arguments: bytes, *kept: Any) -> tuple[CallOutcome, Any]:
        """A function of what workers have returned, and its own arguments."""
        torch.set_num_threads(1)
        return _outcome(lambda: function(*kept, *ray_module().cloudpickle.loads(arguments)))


def _outcome(work: Callable[[], Any]) -> tuple[CallOutcome, Any]:
    began = time.monotonic()
    try:
        result = work()
    # Of a user's function, too, that ends the program.
    except (Exception, SystemExit) as error:
        return CallOutcome(sendable(error), time.monotonic() - began), None
    return CallOutcome(None, time.monotonic() - began), result


class RemoteError(Exception):
    """An error that only the worker knows the class of; its text says which."""


class WorkerTraceback(Exception):
    """Where on a worker an error was raised; a cause, so that it is printed and stored with it."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}" if self.args else ""


def sendable(error: BaseException) -> BaseException:
    """An error that can be pickled, of the same class or the next one above it that can, with its traceback."""
    pickle = ray_module().cloudpickle
    whole = "".join(traceback.format_exception(error))
    sent: BaseException = RemoteError(f"{type(error).__name__}: {error}")
    try:
        again = pickle.loads(pickle.dumps(error))
        sent = again if str(again) == str(error) else sent
    except Exception:
        sent = _plainer(error) or sent
    sent.__dict__[_TRACEBACK] = whole
    return sent


def received(error: BaseException) -> BaseException:
    """The error as whoever waits for it raises it: pickles leave causes out."""
    error.__cause__ = WorkerTraceback(error.__dict__.pop(_TRACEBACK, ""))
    return error


_TRACEBACK = "worker_traceback"


def _plainer(error: BaseException) -> BaseException | None:
    """Of our own errors, the next class above that is made of a message alone."""
    for kind in type(error).__mro__:
        if issubclass(kind, UnmaskError) and "__init__" not in vars(kind):
            return kind(str(error))
    return None
