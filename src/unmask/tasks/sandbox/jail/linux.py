"""What the Linux kernel offers to shut a process in. The standard library wraps little of it, hence ctypes.

Every function either does what it says or raises `OSError`; none falls back to less.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from typing import Any

INNER_USER = 1000
"""Who a user without privileges is inside his user namespace."""

CLONE_THREAD = 0x00010000
NEW_MOUNTS, NEW_UTS, NEW_IPC = 0x00020000, 0x04000000, 0x08000000
NEW_USER, NEW_PID, NEW_NET, NEW_CGROUP = 0x10000000, 0x20000000, 0x40000000, 0x02000000

_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _NOATIME, _NODIRATIME = 1, 2, 4, 8, 32, 1024, 2048
_BIND, _REC, _PRIVATE, _RELATIME = 4096, 16384, 1 << 18, 1 << 21
_DETACH = 2
_MOUNT_OPTIONS = {"nosuid": _NOSUID, "nodev": _NODEV, "noexec": _NOEXEC, "noatime": _NOATIME}
_MOUNT_OPTIONS |= {"nodiratime": _NODIRATIME, "relatime": _RELATIME, "ro": _RDONLY}

# Options of prctl.
_PDEATHSIG, _GET_DUMPABLE, _DUMPABLE, _SECCOMP = 1, 3, 4, 22
_SUBREAPER, _NO_NEW_PRIVS, _CAP_AMBIENT = 36, 38, 47


def _call(name: str, *arguments: object) -> int:
    """Call a C function that reports failure as -1."""
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
    _call("prctl", option, *[*arguments, 0, 0, 0, 0][:4])


def die_with_parent() -> None:
    """Be killed when the parent ends. Forgotten by the kernel when the user changes: call it after that."""
    _prctl(_PDEATHSIG, 9)


def hide_memory() -> int:
    """Nobody with the same user may look into this process, take its files or steer it; returns how it was."""
    before = _call("prctl", _GET_DUMPABLE, 0, 0, 0, 0)
    _prctl(_DUMPABLE, 0)
    return before


def show_memory() -> None:
    """Undo `hide_memory`."""
    _prctl(_DUMPABLE, 1)


def adopt_orphans() -> None:
    """Descendants that lose their parent become ours, so that none of them gets away."""
    _prctl(_SUBREAPER, 1)


# ---------------------------------------------------------------------------------------------- namespaces


def enter_namespaces(as_root: bool) -> None:
    """Own mounts, network, IPC and host name; children get their own process numbers.

    Root can do so directly. Anybody else first needs a user namespace, in which he is powerful.
    """
    flags = NEW_MOUNTS | NEW_UTS | NEW_IPC | NEW_NET | NEW_PID
    if as_root:
        _call("unshare", flags)
        return
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", flags | NEW_USER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{INNER_USER} {uid} 1"),
        ("gid_map", f"{INNER_USER} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def enter_root(visible: Iterable[str], work: str, disk_mb: int, owner: int) -> None:
    """Change to a file system of the visible paths, read-only, and an empty folder `work` in memory."""
    _mount(None, "/", None, _REC | _PRIVATE)
    paths = outermost(visible)
    base = _hiding_place(paths)
    _mount("tmpfs", base, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
    for path in [*paths, *(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))]:
        _bind(path, base)
    os.makedirs(base + work)
    _make_read_only(base)
    options = f"size={disk_mb}m,nr_inodes={disk_mb * 256},mode=700,uid={owner},gid={owner}"
    _mount("tmpfs", base + work, "tmpfs", _NOSUID | _NODEV, options)
    os.chdir(base)
    _call("pivot_root", b".", b".")
    _call("umount2", b".", _DETACH)
    os.chdir(work)


def outermost(paths: Iterable[str]) -> list[str]:
    """The paths that exist and, where links lead elsewhere, their real places; none that lies inside another."""
    there = [path for path in paths if os.path.exists(path)]
    outer_paths: list[str] = []
    for path in sorted({*map(os.path.abspath, there), *map(os.path.realpath, there)}):
        if not any(path == outer or path.startswith(outer.rstrip("/") + "/") for outer in outer_paths):
            outer_paths.append(path)
    return outer_paths


def _hiding_place(paths: list[str]) -> str:
    """A folder to build the new root on: what it holds becomes invisible, so it must hold none of the paths."""
    for place in ("/sys", "/mnt", "/media", "/tmp", "/home"):
        if os.path.isdir(place) and not any(path.startswith(place + "/") for path in paths):
            return place
    raise OSError(errno.ENOENT, "no folder to build the new root on")


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    try:
        _call("mount", *texts[:3], ctypes.c_ulong(flags), texts[3])
    except OSError as error:
        raise OSError(error.errno, f"mount {target}: {os.strerror(error.errno or 0)}") from None


def _bind(path: str, base: str) -> None:
    target = base + path
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    elif os.path.exists(path):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    else:
        return
    # Recursive: a user namespace may not show what other mounts cover.
    _mount(path, target, None, _BIND | _REC)


def _make_read_only(base: str) -> None:
    """Remount everything under the new root. Flags that a mount has must be kept, or the kernel refuses."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        rows = [line.split() for line in file]
    # By number, not by name: below the same folder there may be older mounts, now covered.
    inside = {[row[0] for row in rows if _unescape(row[4]) == base][-1]}
    for row in rows:
        if row[0] in inside or row[1] in inside:
            inside.add(row[0])
            target = _unescape(row[4])
            flags = sum(_MOUNT_OPTIONS.get(option, 0) for option in row[5].split(","))
            device = 0 if target.startswith(f"{base}/dev/") else _NODEV
            _mount(None, target, None, _REMOUNT | _BIND | _RDONLY | _NOSUID | device | flags)


def _unescape(text: str) -> str:
    for sign in (" ", "\t", "\n", "\\"):
        text = text.replace(f"\\{ord(sign):03o}", sign)
    return text


def spare_user(number: int) -> int:
    """A user id that nobody has, as far as one can know; different numbers give different ids."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        end = max(int(first) + int(count) for first, _, count in map(str.split, file))
    # Above what systemd gives to containers; inside one there are often no more than 65536.
    uid = 0x70000000 + number if end > 0x7FFFFFFF else end - 1 - number % max(1, end // 2)
    if uid <= 0:
        raise OSError(errno.EINVAL, "no spare user id: only one user exists here")
    return uid


# ---------------------------------------------------------------------------------------------- privileges


def no_new_privileges() -> None:
    """No program that is run from here on gains privileges. Landlock and seccomp ask for this promise."""
    _prctl(_NO_NEW_PRIVS, 1)


def drop_privileges(uid: int | None) -> None:
    """Become that user (or stay), in no group, without any capability and without a way to gain one."""
    no_new_privileges()
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    try:
        _prctl(_CAP_AMBIENT, 4)
    except OSError as error:
        if error.errno != errno.EINVAL:  # Older than Linux 4.3: there is no such set.
            raise
    header, nothing = struct.pack("=II", 0x20080522, 0), bytes(24)
    _call("capset", header, nothing)


# ---------------------------------------------------------------------------------------------- Landlock


def landlock_version() -> int:
    """What the kernel's Landlock can do; `OSError` if it has none."""
    return _call("syscall", 444, None, 0, 1)


def restrict_files(visible: Iterable[str], work: str, *, signals: bool) -> None:
    """Read the visible paths, do anything in `work`, and nothing else; nor look into processes outside.

    With `signals`, send none outside either. The checker must not have that: when it is killed, the signal that is
    to end the worker counts as sent by it.
    """
    version = landlock_version()
    everything = (1 << (13 if version < 2 else 14 if version < 3 else 15 if version < 5 else 16)) - 1
    network, scopes = 0b11, 0b11 if signals else 0b01
    attributes = struct.pack("=QQQ", everything, network, scopes)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = _call("syscall", 444, attributes, len(attributes), 0)
    execute, write, read, read_folder, truncate = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
    for path in outermost(visible):
        _allow(rules, path, read | (read_folder if os.path.isdir(path) else 0))
    for name in ("null", "zero", "full", "random", "urandom"):
        _allow(rules, f"/dev/{name}", (read | write | truncate) & everything)
    _allow(rules, work, everything & ~execute)
    _call("syscall", 446, rules, 0)
    os.close(rules)


def _allow(rules: int, path: str, access: int) -> None:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        _call("syscall", 445, rules, 1, struct.pack("=Qi", access, handle), 0)
    finally:
        os.close(handle)


# ---------------------------------------------------------------------------------------------- seccomp

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT, _FIFTH_ARGUMENT = 0, 4, 16, 24, 48
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

# System calls by their numbers on x86_64 and aarch64; None where there is no such call. Calls that need a
# capability are not listed: the process has none, and cannot get one because user namespaces are refused.
_Calls = dict[str, tuple[int | None, int | None]]
REFUSED: _Calls = {
    # Network. A socketpair stays possible, which asyncio needs; that it leads nowhere is seen to below. To whom a
    # message goes stands in memory, where a filter cannot look.
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "sendmsg": (46, 211), "sendmmsg": (307, 269),
    # Other programs, other processes. io_uring would be a way around this list.
    "execve": (59, 221), "execveat": (322, 281), "ptrace": (101, 117), "kcmp": (312, 272),
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
    # What others do to files, which Landlock does not hide.
    "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
    # Memory that the limit on the address space does not count, and what others share by a number or a name.
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192), "semctl": (66, 191),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "mq_open": (240, 180), "mq_unlink": (241, 181),
}  # fmt: skip
REFUSED_FORKS: _Calls = {"fork": (57, None), "vfork": (58, None)}
# Landlock does not watch over these (truncate: only from its third version on).
REFUSED_ON_FILES: _Calls = {
    "truncate": (76, 45), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}  # fmt: skip
# Nor over these, which programs use on files of their own without minding what comes of it (`shelve`, `shutil`).
IGNORED_ON_FILES: _Calls = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
}  # fmt: skip
_CLONE, _CLONE3, _PRLIMIT = (56, 220), (435, 435), (302, 261)
_SIGNALS = ((62, 129), (200, 130), (234, 131))
_FCNTL, _IOCTL, _SOCKETPAIR, _SENDTO = (72, 25), (16, 29), (53, 199), (44, 206)
# Of the many things that can be asked of an open file: copies, flags and locks, and what only tells. What is left out
# makes the kernel send signals to somebody else (F_SETOWN, F_SETSIG, F_NOTIFY, F_SETLEASE and their kin).
FCNTL_COMMANDS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 16, 36, 37, 38, 1025, 1030, 1032, 1034)
# Whether it is a terminal and how large, how much can be read, blocking or not, inherited or not. Left out: owners
# and their signals (FIOSETOWN, SIOCSPGRP, FIOASYNC), typing for others (TIOCSTI), flags of files.
IOCTL_COMMANDS = (0x5401, 0x802C542A, 0x5411, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_UNIX = 1
STREAMS = (1, 1 | 0o4000, 1 | 0o2000000, 1 | 0o2004000)
"""Types of a socketpair that can be sent nowhere but to its other end, with flags."""
_NEW_ANYTHING = NEW_MOUNTS | NEW_UTS | NEW_IPC | NEW_USER | NEW_PID | NEW_NET | NEW_CGROUP


def refuse_calls(*, forks: bool, file_attributes: bool) -> None:
    """Make dangerous system calls fail from now on, in this process and its children, for good."""
    program = filter_program(os.uname().machine, os.getpid(), forks=forks, file_attributes=file_attributes)
    array = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(array))
    no_new_privileges()
    _prctl(_SECCOMP, 2, header)


def filter_program(machine: str, pid: int, *, forks: bool, file_attributes: bool) -> bytes:
    """The classic BPF program that looks at each system call."""
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no table of system calls for {machine}")
    architecture, column = _ARCHITECTURES[machine]
    refuse, absent = _ERROR | errno.EPERM, _ERROR | errno.ENOSYS
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, refuse)]
    code += [(_LOAD, 0, 0, _NUMBER)]
    # The second, 32-bit set of numbers on x86_64.
    code += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, refuse)]
    refused = REFUSED | (REFUSED_FORKS if forks else {}) | (REFUSED_ON_FILES if file_attributes else {})
    ignored = IGNORED_ON_FILES if file_attributes else {}
    for calls, answer in ((refused, refuse), (ignored, _ERROR)):
        for numbers in calls.values():
            if (number := numbers[column]) is not None:
                code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, answer)]
    code += _only(_FCNTL[column], _SECOND_ARGUMENT, FCNTL_COMMANDS, refuse)
    code += _only(_IOCTL[column], _SECOND_ARGUMENT, IOCTL_COMMANDS, _ERROR | errno.ENOTTY)
    code += [(_EQUAL, 0, 3, _SOCKETPAIR[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 1, 0, _UNIX)]
    code += [(_RETURN, 0, 0, refuse), (_LOAD, 0, 0, _NUMBER)]
    code += _only(_SOCKETPAIR[column], _SECOND_ARGUMENT, STREAMS, refuse)
    # No address: both halves of the pointer are 0.
    code += [(_EQUAL, 0, 6, _SENDTO[column]), (_LOAD, 0, 0, _FIFTH_ARGUMENT), (_EQUAL, 0, 2, 0)]
    code += [(_LOAD, 0, 0, _FIFTH_ARGUMENT + 4), (_EQUAL, 1, 0, 0), (_RETURN, 0, 0, refuse), (_RETURN, 0, 0, _ALLOW)]
    # Its flags are in memory, where a filter cannot look; the C library then takes `clone`.
    code += [(_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, absent)]
    code += [(_EQUAL, 0, 5 if forks else 4, _CLONE[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    code += [(_ANY_BIT, 2 if forks else 1, 0, _NEW_ANYTHING)]
    code += [(_ANY_BIT, 0, 1, CLONE_THREAD)] if forks else []
    code += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, refuse)]
    for signal in _SIGNALS:
        code += [(_EQUAL, 0, 4, signal[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 0, 1, pid)]
        code += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, refuse)]
    code += [(_EQUAL, 0, 5, _PRLIMIT[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 1, 0, 0), (_EQUAL, 0, 1, pid)]
    code += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, refuse)]
    code += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _only(call: int, argument: int, allowed: tuple[int, ...], refuse: int) -> list[tuple[int, int, int, int]]:
    """Instructions that let a call through only with some values of an argument of 32 bits."""
    count = len(allowed)
    tests = [(_EQUAL, count - place, 0, value) for place, value in enumerate(allowed)]
    body = [(_LOAD, 0, 0, argument), *tests, (_RETURN, 0, 0, refuse), (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(body), call), *body]
