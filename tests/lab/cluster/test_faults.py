"""Whose fault it was, by what Ray says."""

import pytest

from unmask.lab.cluster.faults import FaultKind, fault_of

ray = pytest.importorskip("ray")
import ray.exceptions as told  # noqa: E402

DEAD = "The actor died unexpectedly.\n\tclass_name: A\nThe actor is dead because its {} has died. Worker exit type: X"


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (told.ActorUnavailableError("Socket closed", b"0" * 16), FaultKind.NODE, "Socket closed"),
        (told.RayActorError(None, DEAD.format("node")), FaultKind.NODE, "its node has died"),
        (told.RayActorError(None, DEAD.format("worker process")), FaultKind.PROCESS, "its worker process has died"),
        (told.OutOfMemoryError("memory"), FaultKind.PROCESS, "memory"),
        (told.WorkerCrashedError(), FaultKind.PROCESS, "worker died"),
        (told.ObjectLostError("0" * 56, None, ""), FaultKind.NODE, ""),
        (ValueError("wrong"), FaultKind.ERROR, "wrong"),
    ],
)
def test_kinds(error, kind, text):
    fault = fault_of(ray, error)
    assert fault.kind is kind
    assert text in fault.text
    assert "\n" not in fault.text
