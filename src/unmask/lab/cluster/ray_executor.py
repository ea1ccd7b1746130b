"""Calls on a Ray cluster, as plain tasks: Ray places them, starts them again when a process or node dies, and keeps
their results until they are used.

Processes with a model come from a pool of their own (`_POOL`), so that scoring never runs in one and makes the next
call load the model elsewhere. Each keeps its model from task to task. Ray itself is loaded when the first call is made.
"""

import logging
import math
import os
import platform
import signal
import socket
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch

from unmask.base.environment import code_fingerprint, versions
from unmask.base.errors import ConfigError, UnmaskError, WorkerDied, require
from unmask.base.files import lock
from unmask.lab.cluster.executor import Executor, LocalExecutor, is_out_of_memory, run_to_future
from unmask.lab.cluster.ship_code import ShippedCode, pack_code, ray_module

T = TypeVar("T")

KNOCK_SECONDS, CONNECT_SECONDS = 5.0, 20.0
"""How long an address has to accept a connection, and then to answer as Ray does."""
MAX_RETRIES = 3
"""How often Ray starts a task again whose process or node died, before the driver counts a failed attempt."""
CALLS_PER_WORKER = 2
"""Calls under way for each worker: one is computed while the last one is scored and stored."""
MOST_COORDINATED = 256
MUST_AGREE = ("unmask", "torch", "numpy", "python", "code")
"""Versions that may change a number. Ray itself refuses another minor version of Python."""
_POOL = {"env_vars": {"UNMASK_WORKER": "model"}}
"""Ray gives tasks with another runtime environment other processes."""


@dataclass(frozen=True)
class Ray:
    """A Ray cluster and how it is used."""

    address: str | None = None
    """`auto` or HOST:PORT of a running one; None starts one on this machine and stops it at the end."""
    gpus_per_worker: float | None = None
    """None: one where the cluster has GPUs, else none."""
    workers: int | None = None
    """Calls that run at the same time, at most; None: as many as fit."""

    def __post_init__(self) -> None:
        ok = self.address is None or self.address == "auto" or self.host_and_port is not None
        require(ok, "address", self.address, "auto, or HOST:PORT", "`ray status` on a node of the cluster says it")
        gpus = self.gpus_per_worker
        number = isinstance(gpus, int | float) and not isinstance(gpus, bool)
        ok = gpus is None or (number and math.isfinite(gpus) and gpus >= 0 and (gpus < 1 or gpus == int(gpus)))
        allowed = "a whole number, or a share of one GPU between 0 and 1"
        require(ok, "gpus_per_worker", gpus, allowed, "most models take one")
        whole = isinstance(self.workers, int) and not isinstance(self.workers, bool) and self.workers >= 1
        require(self.workers is None or whole, "workers", self.workers, "1 or more", "leave it out for all that fit")

    @property
    def host_and_port(self) -> tuple[str, int] | None:
        """Host and port to connect to; None for `auto` and for a cluster that is started here."""
        host, colon, port = (self.address or "").rpartition(":")
        ok = bool(host and colon) and "/" not in host and port.isascii() and port.isdigit() and 0 < int(port) < 65536
        return (host.strip("[]"), int(port)) if ok else None


@contextmanager
def open_executor(cluster: "Ray | Executor | None", load: Callable[[Any], Any]) -> Iterator[Executor]:
    """Open an executor of this process, or of a cluster; one that is open already is used as it is."""
    if cluster is None:
        with LocalExecutor(load) as local:
            yield local
    elif isinstance(cluster, Ray):
        with RayExecutor(cluster, load) as remote:
            yield remote
    else:
        yield cluster


class RayExecutor:
    """Runs calls on the workers of a cluster, which is reached when the first call is made."""

    is_local = False

    def __init__(self, cluster: Ray, load: Callable[[Any], Any]):
        self.cluster, self._load = cluster, load
        self._stack = ExitStack()
        self._connection: Connection | None = None
        self._connecting = threading.Lock()
        self._slots = None if cluster.workers is None else threading.BoundedSemaphore(cluster.workers)
        self._running: dict[Future[Any], Any] = {}
        """Reference of the Ray task behind every future that is not done."""
        self._threads = ThreadPoolExecutor(MOST_COORDINATED, thread_name_prefix="coordinate")
        self._closed = False

    def __enter__(self) -> "RayExecutor":
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what is under way; whoever waits for it gets an error. A cluster that was started here is stopped."""
        self._closed = True
        for outcome, reference in list(self._running.items()):
            _resolve_future(outcome, error=WorkerDied("the work was stopped before this call was done"))
            # A task that cannot be cancelled any more has ended, or ends with the connection.
            with suppress(Exception):
                ray_module().cancel(reference, force=True)
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._stack.close()

    @property
    def workers(self) -> int:
        return max(1, self._connect().count_workers())

    @property
    def ahead(self) -> int:
        return CALLS_PER_WORKER * self.workers

    def share(self, value: T) -> "RayValue[T]":
        ray = self._connect().ray
        return RayValue(os.urandom(8).hex(), ray.put(pack_code(value)))

    def submit(
        self, function: Callable[..., Any], spec: Any, *arguments: Any, then: Callable[[Any], Any] | None = None
    ) -> "Future[Any]":
        connection = self._connect()
        # Waits here while the most workers that may be used are busy.
        if self._slots is not None:
            self._slots.acquire()
        call = pack_code((function, spec, arguments))
        # In a list, or each call would be a dependency: Ray leases a worker anew for other dependencies.
        reference = connection.ray.put(call)
        computed = connection.run_with_model.remote(connection.setup, [reference], then is not None)
        if (slots := self._slots) is not None:
            computed.future().add_done_callback(lambda done: slots.release())
        if then is None:
            return self._make_future(computed)
        # The result of the call needs the same code.
        after = connection.ray.put(ShippedCode(call.files, connection.ray.cloudpickle.dumps((then, ()))))
        return self._make_future(connection.run_without_model.remote(connection.setup, [after], computed))

    def submit_without_model(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        connection = self._connect()
        call = connection.ray.put(pack_code((function, arguments)))
        return self._make_future(connection.run_without_model.remote(connection.setup, [call]))

    def run_in_driver(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        # In a thread, so that several functions wait for their calls at the same time.
        outcome: Future[Any] = Future()
        self._threads.submit(run_to_future, outcome, lambda: function(*arguments))
        return outcome

    def _connect(self) -> "Connection":
        with self._connecting:
            if self._closed:
                raise WorkerDied("the workers of the cluster were let go")
            if self._connection is None:
                ray = self._stack.enter_context(connect(self.cluster))
                self._connection = Connection(ray, self.cluster, self._load)
            return self._connection

    def _make_future(self, reference: Any) -> "Future[Any]":
        """Return a future for a Ray task, which raises the worker's original error."""
        outcome: Future[Any] = Future()
        self._running[outcome] = reference

        def settle(done: "Future[Any]") -> None:
            self._running.pop(outcome, None)
            try:
                _resolve_future(outcome, done.result())
            # Whatever it is, the waiting thread must see it: an error in here would be lost.
            except BaseException as error:
                _resolve_future(outcome, error=_original_error(error))

        reference.future().add_done_callback(settle)
        return outcome


def _resolve_future(outcome: "Future[Any]", value: Any = None, error: BaseException | None = None) -> None:
    """Set the result or error of a future, unless it has one already."""
    with suppress(Exception):
        if error is None:
            outcome.set_result(value)
        else:
            outcome.set_exception(error)


class Connection:
    """A connection to Ray: how tasks are started, and the setup that all of them read."""

    def __init__(self, ray: Any, cluster: Ray, load: Callable[[Any], Any]):
        self.ray, self.cluster = ray, cluster
        self.gpus = gpus_of_worker(cluster, self._nodes())
        setup = Setup(os.urandom(8).hex(), pack_code(load), identity(), torch.get_num_threads(), self.gpus)
        self.setup = ray.put(setup)
        # Without `max_calls=0` a process with a GPU would end after each task, and load the model for the next.
        remote = ray.remote(max_retries=MAX_RETRIES, max_calls=0)
        self.run_with_model = remote(_run_with_model).options(num_cpus=1, num_gpus=self.gpus, runtime_env=_POOL)
        # Claims no core: on a node whose cores all compute, it would wait for ever.
        self.run_without_model = remote(_run_without_model).options(num_cpus=0)

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    def count_workers(self) -> int:
        """Count the calls that the nodes of this moment can run at the same time."""
        fit = sum(count_workers_on(node, self.gpus) for node in self._nodes())
        return fit if self.cluster.workers is None else min(fit, self.cluster.workers)


def count_workers_on(node: Mapping[str, float], gpus: float) -> int:
    """Count the workers that a node has room for, one core and so many GPUs each."""
    cores = int(node.get("CPU", 0))
    # A share such as 0.1 may lie a rounding error above a tenth.
    return min(cores, math.floor(node.get("GPU", 0) / gpus + 1e-9)) if gpus else cores


def gpus_of_worker(cluster: Ray, nodes: Sequence[Mapping[str, float]]) -> float:
    """Return how many GPUs a worker takes; refuse a number that no node has."""
    most = max((node.get("GPU", 0) for node in nodes), default=0)
    gpus = cluster.gpus_per_worker
    if gpus is None:
        gpus = 1 if most >= 1 else 0
    if not any(count_workers_on(node, gpus) for node in nodes):
        counts = dict.fromkeys(f"{node.get('CPU', 0):g} cores and {node.get('GPU', 0):g} GPUs" for node in nodes)
        there = f"{len(nodes)} nodes: {'; '.join(counts)}" if nodes else "it has no nodes"
        raise ConfigError(
            f"gpus_per_worker is {gpus:g}, and no node of the cluster has room for such a worker ({there}); "
            f"allowed: up to {most:g} GPUs beside a core; lower --gpus-per-worker, or add nodes"
        )
    return gpus


# Connecting


def connect(cluster: Ray) -> AbstractContextManager[Any]:
    """Connect to Ray, within seconds or not at all. A connection that the caller already has is used and kept."""
    return _connect(ray_module(), cluster)


@contextmanager
def _connect(ray: Any, cluster: Ray) -> Iterator[Any]:
    if ray.is_initialized():
        yield ray
        return
    try:
        if cluster.host_and_port is not None:
            socket.create_connection(cluster.host_and_port, KNOCK_SECONDS).close()
        _start_within(CONNECT_SECONDS if cluster.address else None, ray, cluster)
    # Ray raises errors of many classes here, plain `Exception` among them.
    except Exception as error:
        with suppress(Exception):
            ray.shutdown()
        raise _connection_error(cluster, error) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _start_within(seconds: float | None, ray: Any, cluster: Ray) -> None:
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    local = {"address": "local", "include_dashboard": False}
    # Ray replaces the program's handler of SIGTERM.
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM) if in_main else None
    connected: Future[Any] = Future()
    start = lambda: ray.init(**quiet, **({"address": cluster.address} if cluster.address else local))  # noqa: E731
    try:
        if seconds is None:
            start()
            return
        # In a thread: Ray waits for minutes for a server that accepts connections and is no Ray.
        threading.Thread(target=run_to_future, args=(connected, start), name="connect to Ray", daemon=True).start()
        connected.result(seconds)
    except TimeoutError as error:
        raise TimeoutError(f"it does not answer as Ray does within {seconds:g} s") from error
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, handler)


def _connection_error(cluster: Ray, error: Exception) -> ConfigError:
    reason = " ".join(str(error).split()) or type(error).__name__
    if "ersion mismatch" in reason:
        return ConfigError(
            f"the cluster at {cluster.address} has another Ray or Python than this one ({reason[:300]}); allowed: the "
            "same versions on every node; install them"
        )
    if cluster.address is None:
        return ConfigError(
            f"no cluster could be started on this machine ({reason[:300]}); allowed: a machine with room for one; look "
            "into /tmp/ray/session_latest/logs"
        )
    return ConfigError(
        f"no Ray cluster answers at {cluster.address!r} ({reason[:200]}); allowed: auto on a node of a running "
        "cluster, or HOST:PORT of its head; start one with `ray start --head`, or name no address for one of this "
        "machine (one that asks for a token needs RAY_AUTH_MODE=token here, too)"
    )


# Errors of tasks


def _original_error(error: BaseException) -> BaseException:
    """Return the error that a task raised, with the worker's traceback as its cause; or say that its process died."""
    exceptions = ray_module().exceptions
    if isinstance(error, exceptions.RayTaskError):
        cause = getattr(error, "cause", None)
        original = cause if isinstance(cause, BaseException) else error
        if "failed to import on the worker" in str(error) or isinstance(original, ImportError):
            return ConfigError(
                f"a worker cannot run unmask ({_first_line(original)}); allowed: nodes with the same packages as the "
                "driver; install them there"
            )
        # Ray makes an error of both classes, which may lack the attributes of its own.
        original.__cause__ = WorkerTraceback(getattr(error, "traceback_str", str(error)))
        return original
    if isinstance(error, exceptions.RuntimeEnvSetupError):
        return ConfigError(
            f"workers do not start ({_first_line(error)}); allowed: nodes that can; look into Ray's logs there"
        )
    if isinstance(error, exceptions.RayError):
        return WorkerDied(f"a worker process ended {MAX_RETRIES + 1} times during its work ({_first_line(error)})")
    return error


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]


class WorkerTraceback(Exception):
    """The traceback of a worker, as the cause of an error that was raised there, so that it is printed and stored."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}" if self.args else ""


class RemoteError(Exception):
    """An error of a class that only the worker knows; its text names the class."""


def as_sendable(error: BaseException) -> BaseException:
    """Return an error that survives pickling: itself, a class above it that does, or its text."""
    pickle = ray_module().cloudpickle
    with suppress(Exception):
        if str(pickle.loads(pickle.dumps(error))) == str(error):
            return error
    for kind in type(error).__mro__:
        if issubclass(kind, UnmaskError) and "__init__" not in vars(kind):
            return kind(str(error))
    return RemoteError(f"{type(error).__name__}: {error}")


# In the worker's process


class Setup(NamedTuple):
    """Setup of workers, sent with every task: versions that must agree, and how models are loaded."""

    key: str
    load: ShippedCode
    identity: Mapping[str, str]
    threads: int
    """Threads of torch in the driver: another number may move last bits."""
    gpus: float


@dataclass
class WorkerState:
    """The model and the shared values that a worker process keeps from task to task."""

    setup: Setup | None = None
    load: Callable[[Any], Any] | None = None
    loaded: tuple[Any, Any] | None = None
    shared: tuple[str, Any] | None = None

    def model(self, spec: Any) -> Any:
        """Load the model of a spec, unless it is the one that was used last."""
        assert self.load is not None
        if self.loaded is None or self.loaded[0] != spec:
            self.loaded = None
            self.loaded = (spec, self.load(spec))
        return self.loaded[1]


_WORKER = WorkerState()
_GPUS = ExitStack()
_OWN_GPUS: list[str] = []


@dataclass(frozen=True)
class RayValue(Generic[T]):
    """A shared value in Ray's object store."""

    key: str
    reference: Any

    def open(self) -> T:
        if _WORKER.shared is None or _WORKER.shared[0] != self.key:
            _WORKER.shared = None
            _WORKER.shared = (self.key, ray_module().get(self.reference).open())
        value: T = _WORKER.shared[1]
        return value


def _run_with_model(setup: Setup, call: list[Any], as_bytes: bool) -> Any:
    """Run a call with a model: a Ray task. Its result is pickled here where a process without its code gets it."""

    def run() -> Any:
        if setup.gpus >= 1:
            claim_gpus(ray_module().get_runtime_context().get_accelerator_ids()["GPU"])
        if _WORKER.setup is None or _WORKER.setup.key != setup.key:
            check_identity(identity(), setup.identity)
            _WORKER.loaded = _WORKER.shared = None
            _WORKER.setup, _WORKER.load = setup, setup.load.open()
        # Of this thread, and Ray sets the number before a task: each task sets it anew.
        torch.set_num_threads(setup.threads)
        function, spec, arguments = ray_module().get(call[0]).open()
        result = function(_WORKER.model(spec), *arguments)
        # As an array, which processes on a node share without a copy.
        return np.frombuffer(ray_module().cloudpickle.dumps(result), np.uint8) if as_bytes else result

    return _run_task(run)


def _run_without_model(setup: Setup, call: list[Any], *results: np.ndarray) -> Any:
    """Run a call that needs no model, on the pickled results of other tasks: a Ray task."""

    def run() -> Any:
        check_identity(identity(), setup.identity)
        torch.set_num_threads(1)
        function, arguments = ray_module().get(call[0]).open()
        return function(*map(ray_module().cloudpickle.loads, results), *arguments)

    return _run_task(run)


def _run_task(run: Callable[[], Any]) -> Any:
    try:
        return run()
    # SystemExit too: a user's function that ends the program must not look like a dead worker.
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            # Another attempt may have more memory, but not while this process keeps a model.
            _WORKER.loaded = _WORKER.shared = None
            host, reason = socket.gethostname(), " ".join(str(error).split())[:200] or type(error).__name__
            raise WorkerDied(f"a worker on {host} ran out of memory ({reason})") from error
        sent = as_sendable(error)
        if sent is error:
            raise
        trace = "".join(traceback.format_exception(error))
        raise sent from WorkerTraceback(trace)


def identity() -> dict[str, str]:
    """Return the versions and the code that this process computes with, and its host."""
    major, minor, _ = platform.python_version_tuple()
    return {**versions(), "python": f"{major}.{minor}", "code": code_fingerprint(), "host": socket.gethostname()}


def check_identity(worker: Mapping[str, str], driver: Mapping[str, str]) -> None:
    """Refuse a worker with other code or versions than the driver's: numbers of both would mix."""
    wrong = [key for key in MUST_AGREE if worker.get(key) != driver[key]]
    if wrong:
        differ = "; ".join(f"{key} {worker.get(key)} there, {driver[key]} here" for key in wrong)
        raise ConfigError(
            f"a worker on {worker.get('host')} computes with something else than this driver ({differ}); allowed: the "
            "same versions and code on every node, or numbers would mix; install the same there"
        )


def claim_gpus(gpus: Sequence[str]) -> None:
    """Make sure that no other process keeps a model on the GPUs that Ray gave to this task.

    Ray counts a GPU as free when no task has it. An idle process of an earlier task may still hold its memory, and a
    process that has used one GPU computes there even if its next task is given another. So a process keeps a lock for
    each GPU it has used, ends if it is given others (Ray starts the task again elsewhere), and ends the process that
    has the lock of a GPU it was given: Ray gave that GPU to nobody else, so the other one is idle.
    """
    if list(gpus) == _OWN_GPUS:
        return
    if _OWN_GPUS:
        os._exit(1)
    folder = Path(tempfile.gettempdir()) / f"unmask-gpus-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for gpu in gpus:
        owner = folder / f"{gpu}.pid"
        for _ in range(100):
            try:
                _GPUS.enter_context(lock(folder / f"{gpu}.lock"))
                break
            except BlockingIOError:
                with suppress(OSError, ValueError):
                    os.kill(int(owner.read_text()), signal.SIGKILL)
                # The system takes the lock and the memory back when the process is gone, which may take a moment.
                threading.Event().wait(0.1)
        else:
            raise ConfigError(
                f"GPU {gpu} of {socket.gethostname()} is kept by another process of unmask; allowed: one that is free; "
                f"end process {owner.read_text().strip()} there"
            )
        owner.write_text(str(os.getpid()))
        _OWN_GPUS.append(gpu)
