"""Confine a process: resource limits, no privileges, files by Landlock, system calls by seccomp.

The standard library wraps none of the last three, hence ctypes. Every function does what it says or raises `OSError`;
none falls back to less. Imported by the library and, without it, by the interpreter that runs a completion: it needs
the standard library alone.
"""

import _socket
import ctypes
import errno
import functools
import math
import os
import resource
import struct
import sys
from collections.abc import Callable
from typing import Any

OPEN_FILES = 64
FILE_BYTES = 16 << 20
TASKS = 1 << 20
"""Processes of the user. Far above what anybody has: the filter refuses them, and this only bars raising the limit."""
STACK_BYTES = 2 << 20
"""Stack of a thread: the usual 8 MB count against the memory limit though hardly any of it is used."""
PACKAGES = ("site-packages", "dist-packages")

# System calls of Landlock, by their numbers on every architecture: the C library has no functions for them.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
# Options of prctl.
_DIE_WITH_PARENT, _DUMPABLE, _SECCOMP, _NO_NEW_PRIVILEGES, _AMBIENT = 1, 4, 22, 38, 47


def _call_libc(name: str, *arguments: object) -> int:
    """Call a function of the C library, and raise `OSError` if it returns -1."""
    try:
        function: Any = getattr(ctypes.CDLL(None, use_errno=True), name)
    except AttributeError:
        raise OSError(errno.ENOSYS, f"the C library has no {name}") from None
    # All but this one return an int; read as a long, its -1 need not be -1.
    function.restype = ctypes.c_long if name == "syscall" else ctypes.c_int
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result: int = function(*words)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def _prctl(option: int, *arguments: object) -> None:
    _call_libc("prctl", option, *[*arguments, 0, 0, 0, 0][:4])


# Limits and privileges


def lower_limits(memory_mb: int) -> None:
    """Limit memory, files and core dumps of this process and those it forks."""
    # No core dump: a crash would write all of the memory to the disk.
    _lower_limit(resource.RLIMIT_CORE, 0)
    _lower_limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    _lower_limit(resource.RLIMIT_FSIZE, FILE_BYTES)
    _lower_limit(resource.RLIMIT_AS, memory_mb << 20)


def lower_worker_limits(cpu_s: float) -> None:
    """Limit the CPU time and the processes of this worker. The process that runs the tests has no such limits."""
    # The soft limit sends a signal that a completion may ignore; a second later the hard one kills.
    _lower_limit(resource.RLIMIT_CPU, math.ceil(cpu_s), math.ceil(cpu_s) + 1)
    _lower_limit(resource.RLIMIT_NPROC, TASKS)


def _lower_limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Lower a resource limit of this process. A limit that is already lower stays."""
    now = resource.getrlimit(kind)[1]
    hard = soft if hard is None else hard
    # The lower of both, because raising a hard limit needs a privilege and would fail.
    hard = hard if now == resource.RLIM_INFINITY else min(now, hard)
    resource.setrlimit(kind, (min(soft, hard), hard))


def drop_privileges() -> None:
    """Give up every capability and every way to gain one, which Landlock and seccomp require."""
    _prctl(_NO_NEW_PRIVILEGES, 1)
    try:
        _prctl(_AMBIENT, 4)
    except OSError as error:
        if error.errno != errno.EINVAL:  # Older than Linux 4.3: there is no such set.
            raise
    # Version 3 of the header, and this process; then the effective, permitted and inheritable set, all empty.
    _call_libc("capset", struct.pack("=II", 0x20080522, 0), bytes(24))


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends. The filter keeps a completion from undoing that."""
    _prctl(_DIE_WITH_PARENT, 9)


def hide_memory() -> None:
    """Keep other processes of the same user from reading this process's memory or tracing it."""
    _prctl(_DUMPABLE, 0)


# Files, by Landlock


@functools.cache
def readable_paths() -> list[tuple[str, bool]]:
    """List the paths that a completion needs, each with whether files below it may be read or only listed.

    The standard library and shared libraries are named entry by entry, because a rule holds for all below a folder:
    packages that were installed beside them would come along, and verdicts would depend on the machine.
    """
    import sysconfig

    library = os.path.dirname(os.__file__)
    found: dict[str, bool] = {library: False}
    extensions = os.path.join(sysconfig.get_path("platstdlib"), "lib-dynload")
    folders = ["/lib", "/lib64", "/lib32", "/usr/lib", "/usr/lib64", "/usr/lib32"]
    folders += [f"{prefix}/{lib}" for prefix in (sys.base_prefix, sys.base_exec_prefix) for lib in ("lib", "lib64")]
    for folder in (library, *folders):
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if name not in PACKAGES and (folder == library or not name.startswith("python")):
                found[os.path.join(folder, name)] = True
    for path in (extensions, "/etc/ld.so.cache", "/usr/share/zoneinfo"):
        found[path] = True
    return [(path, files) for path, files in found.items() if os.path.exists(path)]


def landlock_version() -> int:
    """Return the version of the kernel's Landlock; raise `OSError` if it has none."""
    # No attributes, of no bytes, and the flag that asks for the version.
    return _call_libc("syscall", _CREATE_RULESET, None, 0, 1)


def restrict_files(readable: list[tuple[str, bool]], work: str) -> None:
    """Restrict this process to the given paths, some devices, and plain files in the folder `work`.

    The folder stays flat: one with folders in it could be made so deep that nobody can remove it. Where the kernel
    knows how, connections and signals to processes outside are refused as well.
    """
    version = landlock_version()
    # What a ruleset handles is denied where no rule allows it. A kernel refuses rights that it does not know, and
    # attributes that are longer than its own, so both are cut to its version.
    everything = (1 << (13 if version < 2 else 14 if version < 3 else 15 if version < 5 else 16)) - 1
    network, scopes = 0b11, 0b11
    attributes = struct.pack("=QQQ", everything, network, scopes)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = _call_libc("syscall", _CREATE_RULESET, attributes, len(attributes), 0)
    write, read, read_folder, remove, make, truncate = 1 << 1, 1 << 2, 1 << 3, 1 << 5, 1 << 8, 1 << 14
    for path, files in readable:
        _allow_path(rules, path, (read if files else 0) | (read_folder if os.path.isdir(path) else 0))
    for name in ("zero", "full", "random", "urandom"):
        _allow_path(rules, f"/dev/{name}", read)
    _allow_path(rules, os.devnull, (read | write | truncate) & everything)
    _allow_path(rules, work, (read | write | truncate | read_folder | remove | make) & everything)
    _prctl(_NO_NEW_PRIVILEGES, 1)
    _call_libc("syscall", _RESTRICT_SELF, rules, 0)
    os.close(rules)


def _allow_path(rules: int, path: str, access: int) -> None:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        _call_libc("syscall", _ADD_RULE, rules, 1, struct.pack("=Qi", access, handle), 0)
    finally:
        os.close(handle)


# System calls, by seccomp

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _FIFTH = 0, 4, 16, 24, 48
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_Instruction = tuple[int, int, int, int]
_REFUSE, _ABSENT = (_RETURN, 0, 0, _ERROR | errno.EPERM), (_RETURN, 0, 0, _ERROR | errno.ENOSYS)

# System calls by their numbers on x86_64 and aarch64; None where there is no such call. Calls that need a capability
# are not listed: the process has none, and cannot get one because user namespaces are refused.
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # Network. To whom a message goes stands in memory, where a filter cannot look.
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "sendmsg": (46, 211), "sendmmsg": (307, 269),
    # Other programs, other processes. io_uring would be a way around this list; a process of another session or
    # group would not end with the run.
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "setsid": (112, 157), "setpgid": (109, 154), "ptrace": (101, 117), "kcmp": (312, 272),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # Namespaces, keys, and parts of the kernel that a function of a few lines has no business with.
    "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "personality": (135, 92), "syslog": (103, 116), "modify_ldt": (154, None), "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    # What others do to files, which Landlock does not hide, and changes of files that it does not watch over.
    "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
    "truncate": (76, 45), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "file_setattr": (469, 469), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "fchmodat2": (452, 452), "chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    # Memory that the limit on the address space does not count, and what others share by a number or a name.
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192), "semctl": (66, 191),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "mq_open": (240, 180), "mq_unlink": (241, 181),
}  # fmt: skip
# Of the many things that can be asked of an open file: copies, flags and locks, and what only tells. What is left out
# makes the kernel send signals to somebody else (F_SETOWN, F_SETSIG, F_NOTIFY, F_SETLEASE and their kin).
FCNTL_COMMANDS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 16, 36, 37, 38, 1025, 1030, 1032, 1034)
# Whether it is a terminal and how large, how much can be read, blocking or not, inherited or not. Left out: owners
# and their signals (FIOSETOWN, SIOCSPGRP, FIOASYNC), typing for others (TIOCSTI), flags of files.
IOCTL_COMMANDS = (0x5401, 0x802C542A, 0x5411, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# Names of threads and of memory, and what only tells. Left out: to outlive the parent, to be looked into.
PRCTL_OPTIONS = (2, 3, 15, 16, 0x53564D41)
UNIX_SOCKETS = (1,)
# Types of a pair of sockets that can be sent nowhere but to its other end, with flags. asyncio needs one.
STREAMS = (1, 1 | 0o4000, 1 | 0o2000000, 1 | 0o2004000)
NO_ADDRESS = (0,)
_THREAD, _NEW_NAMESPACES = 0x00010000, 0x7E020000


def refuse_calls(*others: int) -> None:
    """Make dangerous system calls of this process fail from now on. Signals may go to this process and to `others`."""
    program = filter_program(os.uname().machine, os.getpid(), *others)
    # Kept in a variable: the kernel reads the program through a pointer, and the memory must still be there.
    array = ctypes.create_string_buffer(program, len(program))
    _prctl(_NO_NEW_PRIVILEGES, 1)
    _prctl(_SECCOMP, 2, struct.pack("@HP", len(program) // 8, ctypes.addressof(array)))


def filter_program(machine: str, pid: int, *others: int) -> bytes:
    """Build the BPF program with which the kernel allows or refuses each system call of process `pid`."""
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no table of system calls for {machine}")
    architecture, column = _ARCHITECTURES[machine]
    # The architecture comes first: a process may enter the kernel in 32-bit mode, where numbers mean other calls.
    # The last but one test is for the second, 32-bit set of numbers on x86_64.
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), _REFUSE]
    code += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, 0x40000000), _REFUSE]
    for number in (numbers[column] for numbers in REFUSED.values()):
        code += [(_EQUAL, 0, 1, number), _REFUSE] if number is not None else []
    # Its flags are in memory, where a filter cannot look; the C library then takes `clone`.
    code += [(_EQUAL, 0, 1, 435), _ABSENT]
    code += [(_EQUAL, 0, 5, (56, 220)[column]), (_LOAD, 0, 0, _FIRST), (_ANY_BIT, 2, 0, _NEW_NAMESPACES)]
    code += [(_ANY_BIT, 0, 1, _THREAD), (_RETURN, 0, 0, _ALLOW), _REFUSE]
    code += _allow_only((72, 25)[column], {_SECOND: FCNTL_COMMANDS})
    code += _allow_only((16, 29)[column], {_SECOND: IOCTL_COMMANDS}, _ERROR | errno.ENOTTY)
    code += _allow_only((157, 167)[column], {_FIRST: PRCTL_OPTIONS})
    code += _allow_only((53, 199)[column], {_FIRST: UNIX_SOCKETS, _SECOND: STREAMS})
    # Both halves of the pointer to an address.
    code += _allow_only((44, 206)[column], {_FIFTH: NO_ADDRESS, _FIFTH + 4: NO_ADDRESS})
    for signal in ((62, 129), (200, 130), (234, 131)):
        code += _allow_only(signal[column], {_FIRST: (pid, *others)})
    code += _allow_only((302, 261)[column], {_FIRST: (0, pid)})
    code += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _allow_only(
    call: int, allowed: dict[int, tuple[int, ...]], answer: int = _ERROR | errno.EPERM
) -> list[_Instruction]:
    """Build BPF instructions that allow a system call only with listed arguments, and return `answer` otherwise."""
    # An instruction loads 32 bits, and to the kernel these arguments have no more: nothing can hide in the bits above.
    # Of the one pointer both halves are compared.
    body: list[_Instruction] = []
    for offset, values in allowed.items():
        # A hit jumps over the other tests and the refusal.
        tests = [(_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
        body += [(_LOAD, 0, 0, offset), *tests, (_RETURN, 0, 0, answer)]
    body.append((_RETURN, 0, 0, _ALLOW))
    return [(_EQUAL, 0, len(body), call), *body]


def check_isolation(landlock: bool) -> None:
    """Try forbidden operations, and raise `OSError` if one succeeds: no completion runs in a sandbox with a hole."""
    attempts: dict[str, Callable[[], object]] = {
        "sockets can be made": _socket.socket,
        "signals can be sent to others": lambda: os.kill(os.getppid(), 0),
    }
    if landlock:
        attempts["files of others can be listed"] = lambda: os.listdir("/")
    for name, attempt in attempts.items():
        try:
            attempt()
        except OSError:
            continue
        raise OSError(errno.EPERM, f"the isolation does not hold: {name}")
