"""The three processes of a run: supervisor, checker, worker. `main` is where the interpreter enters.

On the way in, the first frame of the job describes the run and the completion, the second the tests. The checker
reads the second only after it has forked the worker, whose memory therefore never held them. On the way out, only
the supervisor and the checker hold the pipe for events:

    {"ready": true}                          the walls stand and the clock starts
    {"verdict": .., "detail": ..}            of a check
    {"exit": .., "signal": .., "cpu_s": ..}  of a program, or of a worker that no longer answers
    {"broken": ..}                           of a checker that ended by a signal
    {"trouble": ..}                          the evaluator's fault, never the completion's
"""

import json
import os
import select
import sys

from . import folder, linux
from .checker import guarded_check
from .pipes import FRAME_BYTES, Job, describe, emit, read_frame
from .processes import end, fork, reset_signals, sweep, wake_on_child


def main(job_fd: int, event_fd: int, life_fd: int) -> None:
    """Be the supervisor. The run lasts at most as long as somebody holds the other end of `life_fd`."""
    try:
        job = json.loads(read_frame(job_fd, FRAME_BYTES))
        supervise(job, job_fd, event_fd, life_fd)
    except BaseException as error:
        emit(event_fd, trouble=f"sandbox: {describe(error)}")


def supervise(job: Job, job_fd: int, event_fd: int, life_fd: int) -> None:
    """Build the walls, start the checker inside, wait for the end, leave nothing behind."""
    reset_signals()
    # After the mounts have changed it could not be opened any more.
    null_fd = os.open(os.devnull, os.O_RDWR)
    if not job["counted"] and "seccomp" not in job["layers"]:
        raise OSError("nothing here limits the number of processes")
    if "uid" in job["layers"]:
        job["uid"] = linux.spare_user(os.getpid())
    if job["mode"] == "namespace":
        linux.enter_namespaces(as_root="uid" in job["layers"])
        linux.enter_root(job["visible"], job["work"], job["limits"]["file_mb"], job.get("uid", linux.INNER_USER))
    else:
        os.chdir(job["work"])
        if "uid" in job["layers"]:
            os.chown(job["work"], job["uid"], job["uid"])
    if sys.platform == "linux":
        linux.adopt_orphans()
        linux.hide_memory()
    wakeup = wake_on_child()
    child = fork(lambda: guarded_check(job, job_fd, event_fd, null_fd))
    os.close(job_fd)
    if number := await_end(child, life_fd, wakeup):
        emit(event_fd, broken=f"the process that checks was ended by signal {number}")
    if job["mode"] == "weak":
        if not sweep():
            emit(event_fd, trouble="sandbox: some processes of the completion could not be ended")
        if orphaned(life_fd):
            os.chdir("/")
            folder.remove(job["work"])


def await_end(child: int, life_fd: int, wakeup: int) -> int:
    """Wait for the checker; end it as soon as nobody waits for us any more. The signal that ended it before, or 0."""
    while True:
        readable, _, _ = select.select([life_fd, wakeup], [], [])
        if life_fd in readable:
            end(child)
            return 0
        os.read(wakeup, 512)
        # In a pid namespace the checker is process 1: with it the kernel has ended all others.
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def orphaned(life_fd: int) -> bool:
    """Whether those who started us died. Else they say goodbye first, and delete the folder themselves."""
    return bool(select.select([life_fd], [], [], 0)[0]) and not os.read(life_fd, 1)
