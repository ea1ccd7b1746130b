"""Programs that are after something outside their walls.

Each prints `escaped: ...` where it did what it should not be able to do; what it did to the bystanders shows in them.
System calls are made by number where the C library has no function, on x86-64 and on arm64.
"""

from collections.abc import Iterator, Mapping

PREAMBLE = """
import ctypes, errno, fcntl, os, resource, signal, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"

def escaped(what):
    print("escaped:", what, flush=True)

def attempt(action, *arguments):
    try:
        result = action(*arguments)
        return True if result is None else result
    except (OSError, ImportError, ValueError, AttributeError):
        return False

def call(numbers, *words):
    number = numbers if isinstance(numbers, int) else numbers[0 if X86 else 1]
    libc.syscall.restype = ctypes.c_long
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in words]
    result = libc.syscall(ctypes.c_long(number), *words)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def tell(what, action, *arguments):
    if attempt(action, *arguments) is not False:
        escaped(what)
"""


def program(source: str, places: Mapping[str, object]) -> str:
    """The whole program: the helpers, where the bystanders are, the attack."""
    return PREAMBLE + "".join(f"{name} = {value!r}\n" for name, value in places.items()) + source


# A signal that a file sends to its owner when something happens to it. The owner is somebody else.
_OWNED = """
read, write = os.pipe()
{own}
attempt(fcntl.fcntl, read, 10, signal.SIGUSR1)
fcntl.fcntl(read, fcntl.F_SETFL, fcntl.fcntl(read, fcntl.F_GETFL) | 0o20000)
os.write(write, b"x")
time.sleep(0.1)
"""
SIGNALS = {
    "kill": "attempt(os.kill, VICTIM, signal.SIGUSR1)",
    "kill a group": "attempt(os.killpg, VICTIM, signal.SIGUSR1)",
    "kill everybody (signal 0)": "tell('everybody', os.kill, -1, 0)",
    "kill the parent (signal 0)": "if os.getppid() > 1: tell('parent', os.kill, os.getppid(), 0)",
    "tkill": "attempt(call, (200, 130), VICTIM, 10)",
    "tgkill": "attempt(call, (234, 131), VICTIM, VICTIM, 10)",
    "sigqueue": "libc.sigqueue(VICTIM, 10, 0)",
    "rt_tgsigqueueinfo": """
info = struct.pack("iiiiiiq", 10, 0, -1, 0, os.getpid(), os.getuid(), 0) + bytes(96)
attempt(call, (297, 240), VICTIM, VICTIM, 10, info)
""",
    "pidfd_send_signal": "attempt(lambda: signal.pidfd_send_signal(os.pidfd_open(VICTIM), signal.SIGUSR1))",
    "pidfd_send_signal on a folder of /proc": """
attempt(lambda: signal.pidfd_send_signal(os.open(f"/proc/{VICTIM}", os.O_RDONLY | os.O_DIRECTORY), signal.SIGUSR1))
""",
    "fcntl F_SETOWN": _OWNED.format(own="attempt(fcntl.fcntl, read, 8, VICTIM)"),
    "fcntl F_SETOWN of a group": _OWNED.format(own="attempt(fcntl.fcntl, read, 8, -VICTIM)"),
    "fcntl F_SETOWN_EX": _OWNED.format(own="attempt(fcntl.fcntl, read, 15, struct.pack('ii', 1, VICTIM))"),
    "fcntl with a number of 33 bits": _OWNED.format(own="attempt(call, (72, 25), read, (1 << 32) + 8, VICTIM)"),
    "ioctl FIOSETOWN": """
import _socket
left, right = attempt(_socket.socketpair) or sys.exit()
attempt(fcntl.ioctl, left.fileno(), 0x8901, struct.pack("i", VICTIM))
attempt(fcntl.ioctl, left.fileno(), 0x5452, struct.pack("i", 1))
attempt(right.send, b"x")
time.sleep(0.1)
""",
    "ioctl SIOCSPGRP": """
import _socket
left, right = attempt(_socket.socketpair) or sys.exit()
attempt(fcntl.ioctl, left.fileno(), 0x8902, struct.pack("i", VICTIM))
attempt(fcntl.ioctl, left.fileno(), 0x5452, struct.pack("i", 1))
attempt(right.send, b"x")
time.sleep(0.1)
""",
    "out-of-band data": """
import _socket
left, right = attempt(_socket.socketpair) or sys.exit()
attempt(fcntl.fcntl, left.fileno(), 8, VICTIM)
attempt(right.send, b"x", 1)
time.sleep(0.1)
""",
    "dnotify": """
folder = os.open(".", os.O_RDONLY)
attempt(fcntl.fcntl, folder, 8, VICTIM)
attempt(fcntl.fcntl, folder, 10, signal.SIGUSR1)
attempt(fcntl.fcntl, folder, 1026, 0x4 | (1 << 31) - (1 << 32))
open("touched", "w").close()
# The kernel makes the process that asked the owner; so that is said once more.
attempt(fcntl.fcntl, folder, 8, VICTIM)
open("touched too", "w").close()
time.sleep(0.1)
""",
    "lease": """
open("leased", "w").close()
file = os.open("leased", os.O_RDONLY)
attempt(fcntl.fcntl, file, 1024, fcntl.F_RDLCK)
attempt(fcntl.fcntl, file, 8, VICTIM)
attempt(fcntl.fcntl, file, 10, signal.SIGUSR1)
attempt(os.open, "leased", os.O_WRONLY | os.O_NONBLOCK)
time.sleep(0.1)
""",
    "timer of another thread": """
event = struct.pack("QiiI", 0, 10, 4, VICTIM) + bytes(44)
timer = ctypes.c_int()
if attempt(call, (222, 107), 1, event, ctypes.byref(timer)):
    attempt(call, (223, 110), timer.value, 0, struct.pack("qqqq", 0, 0, 0, 1000), None)
time.sleep(0.1)
""",
    "clone with a signal for the parent": """
parent = os.getppid()
tell("cloned beside the parent", call, (56, 220), 0x8000 | 10, 0, 0, 0, 0)
os._exit(0)
""",
    "the parent's group": "tell('joined a group', os.setpgid, 0, VICTIM)",
    "text put into a terminal": """
for name in ("/dev/tty", 0, 1, 2):
    attempt(lambda: fcntl.ioctl(name if isinstance(name, int) else os.open(name, os.O_RDWR), 0x5412, b"x"))
    attempt(lambda: escaped("typed") if fcntl.ioctl(os.open(name, os.O_RDWR), 0x5412, b"x") else None)
""",
    "second set of numbers (x32)": "if X86: attempt(call, 0x40000000 + 62, VICTIM, 10)",
    "32-bit entry": """
import mmap
if X86:
    area = mmap.mmap(-1, 4096, prot=7)
    # push rbx; mov ebx, edi; mov ecx, esi; mov eax, 37 (kill); int 0x80; pop rbx; ret
    area.write(b"\\x53\\x89\\xfb\\x89\\xf1\\xb8\\x25\\0\\0\\0\\xcd\\x80\\x5b\\xc3")
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int)
    function(ctypes.addressof(ctypes.c_char.from_buffer(area)))(VICTIM, 10)
""",
}
PROCESSES = {
    "ptrace attach": "tell('attached', lambda: libc.ptrace(16, VICTIM, 0, 0) and 1 / 0 or None)",
    "ptrace seize": """
if libc.ptrace(0x4206, VICTIM, 0, 0) == 0: escaped("seized")
""",
    "process_vm_readv": """
here, there = ctypes.create_string_buffer(8), 0x400000
local = struct.pack("QQ", ctypes.addressof(here), 8)
for line in attempt(lambda: open(f"/proc/{VICTIM}/maps").readlines()) or ["400000-"]:
    if attempt(call, (310, 270), VICTIM, local, 1, struct.pack("QQ", int(line.split("-")[0], 16), 8), 1, 0):
        escaped("read memory")
        break
""",
    "process_vm_writev": """
here = ctypes.create_string_buffer(8)
local = struct.pack("QQ", ctypes.addressof(here), 8)
try:
    call((311, 271), VICTIM, local, 1, struct.pack("QQ", 4096, 8), 1, 0)
except OSError as error:
    # Nothing is there, but it might have been written to.
    if error.errno == errno.EFAULT: escaped("may write memory")
""",
    "memory through /proc": "tell('opened', open, f'/proc/{VICTIM}/mem', 'r+b')",
    "files through /proc": "tell('opened', open, f'/proc/{VICTIM}/fd/1', 'rb')",
    "files through pidfd_getfd": "tell('taken', lambda: call(438, os.pidfd_open(VICTIM), 1, 0))",
    "limits of another": "attempt(resource.prlimit, VICTIM, resource.RLIMIT_CPU, (7, 7))",
    "priority of another": "attempt(os.setpriority, os.PRIO_PROCESS, VICTIM, 7)",
    "scheduler of another": "attempt(os.sched_setscheduler, VICTIM, os.SCHED_BATCH, os.sched_param(0))",
    "scheduler by attributes": """
attempt(call, (314, 274), VICTIM, struct.pack("IIQiIQQQ", 48, 3, 0, 0, 0, 0, 0, 0), 0)
""",
    "cores of another": "attempt(os.sched_setaffinity, VICTIM, {max(os.sched_getaffinity(0))})",
    "priority of another's disk": "tell('set', call, (251, 30), 1, VICTIM, 3 << 13)",
    "process_madvise": """
handle = attempt(os.pidfd_open, VICTIM)
if handle: tell("advised", call, 440, handle, struct.pack("QQ", 0, 0), 0, 20, 0)
""",
    "move_pages": "tell('moved', call, (279, 239), VICTIM, 0, None, None, None, 0)",
    "kcmp": "tell('compared', call, (312, 272), os.getpid(), VICTIM, 2, 0, 0)",
    "remove another's queue": "attempt(call, (71, 187), QUEUE, 0, None)",
    "message into another's queue": "attempt(call, (69, 189), QUEUE, struct.pack('qQ', 1, 0), 8, 0)",
    "fork": "if attempt(os.fork) is not False: escaped('forked')",
    "vfork": "tell('forked', call, 58) if X86 else None",
    "clone": "if attempt(call, (56, 220), 17, 0, 0, 0, 0) is not False: escaped('cloned')",
    "clone3": """
arguments = struct.pack("QQQQQQQQ", 0, 0, 0, 0, 17, 0, 0, 0)
if attempt(call, 435, arguments, len(arguments)) is not False: escaped("cloned")
""",
    "exec": "attempt(os.execv, sys.executable or '/bin/sh', ['x', '-c', 'print(\"escaped: ran a program\")'])",
    "exec of a file in memory": """
attempt(lambda: os.write(attempt(os.memfd_create, "x"), b"#!/bin/echo escaped:\\n"))
attempt(os.execve, 5, ["x"], {})
""",
    "spawn": "attempt(lambda: os.posix_spawn('/bin/echo', ['echo', 'escaped: spawned'], {}) and os.wait())",
}
_DATAGRAMS = """
import _socket
pair = attempt(_socket.socketpair, _socket.AF_UNIX, {kind}) or sys.exit()
"""
_TO_PATH = _DATAGRAMS.format(kind="_socket.SOCK_DGRAM")
_HEADER = """
text = ctypes.create_string_buffer(b"x")
vector = (ctypes.c_void_p * 2)(ctypes.addressof(text), 1)
name = ctypes.create_string_buffer(struct.pack("H", 1) + DATAGRAMS.encode() + b"\\0")
words = [ctypes.addressof(name), len(name) - 1, ctypes.addressof(vector), 1, 0, 0, 0, 0]
header = (ctypes.c_uint64 * 8)(*words)
"""
NETWORK = {
    "connect to a port": """
import socket
attempt(lambda: socket.create_connection(TCP, 1))
""",
    "datagram to a port": """
import socket
attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", UDP))
""",
    "connect to a socket file": """
import socket
attempt(lambda: socket.socket(socket.AF_UNIX).connect(STREAM))
""",
    "datagram to a socket file": """
import socket
attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", DATAGRAMS))
""",
    "abstract socket": """
import socket
attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", ABSTRACT))
""",
    "socketpair, then sendto": _TO_PATH + "attempt(pair[0].sendto, b'x', DATAGRAMS)",
    "socketpair, then sendto an abstract name": _TO_PATH + "attempt(pair[0].sendto, b'x', ABSTRACT)",
    "socketpair, then connect": _TO_PATH + "attempt(pair[0].connect, DATAGRAMS)\nattempt(pair[0].send, b'x')",
    "socketpair, then sendmsg": _TO_PATH + "attempt(pair[0].sendmsg, [b'x'], [], 0, DATAGRAMS)",
    "socketpair, then sendmmsg": _TO_PATH + _HEADER + "attempt(call, (307, 269), pair[0].fileno(), header, 1, 0)",
    "socketpair of raw type, then sendto": """
import _socket
pair = attempt(_socket.socketpair, _socket.AF_UNIX, 3) or sys.exit()
attempt(pair[0].sendto, b"x", DATAGRAMS)
""",
    "socketpair with flags, then sendto": """
import _socket
pair = attempt(_socket.socketpair, _socket.AF_UNIX, _socket.SOCK_DGRAM | 0o2000000 | 0o4000) or sys.exit()
attempt(pair[0].sendto, b"x", DATAGRAMS)
""",
}
_FLAGS = """
for name in (FILE, os.__file__):
    file = attempt(os.open, name, os.O_RDONLY)
    flags = ctypes.create_string_buffer(8)
    if file and attempt(fcntl.ioctl, file, 0x80086601, flags) is not False:
        tell("set flags of " + name, fcntl.ioctl, file, 0x40086602, flags)
"""
FILES = {
    "open for writing": "attempt(lambda: open(FILE, 'w').write('x'))",
    "open for appending": "attempt(lambda: open(FILE, 'a').write('x'))",
    "open for change": "attempt(lambda: open(FILE, 'r+').write('x'))",
    "truncate": "attempt(os.truncate, FILE, 0)",
    "remove": "attempt(os.remove, FILE)",
    "rename": "attempt(os.rename, FILE, FILE + '2')",
    "exchange": "attempt(call, (316, 276), -100, FILE.encode(), -100, FIFO.encode(), 2)",
    "link into the folder": "attempt(os.link, FILE, 'linked')\nattempt(lambda: open('linked', 'w').write('x'))",
    "link beside": "attempt(os.link, FILE, FILE + '2')",
    "link by descriptor": """
file = attempt(os.open, FILE, 0o10000000)
if file: attempt(call, (265, 37), file, b"", -100, (FILE + "2").encode(), 0x1000)
""",
    "symbolic link as a way out": "os.symlink(FOLDER, 'out')\nattempt(lambda: open('out/new', 'w'))",
    "chmod": "attempt(os.chmod, FILE, 0o600)",
    "chmod by descriptor": "attempt(lambda: os.fchmod(os.open(FILE, os.O_RDONLY), 0o600))",
    "chown": "attempt(os.chown, FILE, os.getuid(), os.getgid())",
    "utime": "attempt(os.utime, FILE, (0, 0))",
    "extended attribute": "attempt(os.setxattr, FILE, 'user.x', b'1')",
    "flags of a file": _FLAGS,
    "new file": "attempt(lambda: open(FOLDER + '/new', 'w'))",
    "new folder": "attempt(os.mkdir, FOLDER + '/new')",
    "new link": "attempt(os.symlink, 'x', FOLDER + '/new')",
    "new pipe": "attempt(os.mkfifo, FOLDER + '/new')",
    "write into a pipe": """
pipe = attempt(os.open, FIFO, os.O_RDWR | os.O_NONBLOCK)
if pipe and attempt(os.write, pipe, b"x"): escaped("wrote")
""",
    "killed first for want of memory": "attempt(lambda: open(f'/proc/{VICTIM}/oom_score_adj', 'w').write('500'))",
    "remove the folder": "import shutil\nshutil.rmtree(FOLDER, ignore_errors=True)",
    "lease on a file": "attempt(lambda: fcntl.fcntl(os.open(FILE, os.O_RDONLY), 1024, 0) or escaped('leased'))",
    "hint on a file": """
file = attempt(os.open, FILE, os.O_RDONLY)
if file: tell("hinted", fcntl.fcntl, file, 1036, struct.pack("Q", 2))
""",
    "shared memory": "attempt(lambda: (open('/dev/shm/unmask-was-here', 'w'), escaped('wrote'), "
    "os.remove('/dev/shm/unmask-was-here')))",
    "chroot": "tell('new root', os.chroot, '.')",
    "mount": "if libc.mount(b'none', b'.', b'tmpfs', 0, None) == 0: escaped('mounted')",
}
SECRETS = {
    "read a file": "attempt(lambda: print(open(FILE).read()))",
    "list a folder": "attempt(lambda: 'file' in os.listdir(FOLDER) and escaped('listed'))",
    "environment of another": "attempt(lambda: print(open(f'/proc/{VICTIM}/environ').read()))",
    "command line of another": "attempt(lambda: open(f'/proc/{VICTIM}/cmdline').read(1) and escaped('read'))",
    "environment of its own": "os.environ and escaped(str(dict(os.environ)))",
    "environment of the evaluator": """
attempt(lambda: open(f"/proc/{os.getppid()}/environ").read(1) and escaped("read"))
""",
    "inotify on a file": """
watch = attempt(lambda: libc.inotify_init())
if watch and libc.inotify_add_watch(watch, FILE.encode(), 0xfff) >= 0: escaped("watches")
""",
    "handle of a file": """
handle = ctypes.create_string_buffer(struct.pack("I", 128) + bytes(140))
number = ctypes.create_string_buffer(8)
if attempt(call, (303, 264), -100, FILE.encode(), handle, number, 0) is not False:
    tell("opened", call, (304, 265), os.open(".", os.O_RDONLY), handle, 0)
""",
}
# What outlives its process is removed again.
_CALLS = {
    "unshare": "call((272, 97), 0x10000000)",
    "io_uring": "call(425, 4, ctypes.create_string_buffer(256))",
    "bpf": "call((321, 280), 0, struct.pack('IIII', 2, 4, 4, 4) + bytes(100), 72)",
    "perf events": "call((298, 241), struct.pack('IIQ', 1, 112, 0) + bytes(24) + struct.pack('Q', 0x63) + bytes(200), "
    "0, -1, -1, 0)",
    "userfaultfd": "call((323, 282), 1)",
    "keys: add": "call((248, 217), b'user', b'unmask', b'x', 1, -3)",
    "keys: control": "call((250, 219), 0, -3, 0)",
    "personality": "call((135, 92), 0x40000)",
    "memory file": "os.memfd_create('x')",
    "secret memory": "call(447, 0)",
    "System V memory": "call((31, 195), call((29, 194), 0, 4096, 0o1600), 0, None)",
    "System V queue": "call((71, 187), call((68, 186), 0, 0o1600), 0, None)",
    "System V semaphore": "call((66, 191), call((64, 190), 0, 1, 0o1600), 0, 0)",
    "message queue": "call((240, 180), b'unmask', 0o102, 0o600, None) and call((241, 181), b'unmask')",
    "pidfd": "os.pidfd_open(os.getpid())",
}
KERNEL = {
    **{name: f"tell('called', lambda: {source})" for name, source in _CALLS.items()},
    "fanotify": "tell('watches', call, (300, 262), 0x200, 0)",
    "netlink": "import socket\ntell('netlink', socket.socket, socket.AF_NETLINK, socket.SOCK_RAW)",
    "virtual machine socket": "import socket\ntell('vsock', socket.socket, 40, socket.SOCK_STREAM)",
    "a listener": """
import socket
tell("listens", lambda: socket.create_server(("127.0.0.1", 0)))
""",
}
NAMES = {"whether a file is there": "attempt(lambda: os.stat(FILE) and escaped('size and date'))"}
LIMITS = {
    f"raise {name}": f"""
kind = resource.RLIMIT_{name}
soft, hard = resource.getrlimit(kind)
tell("raised", resource.setrlimit, kind, (hard + 1, hard + 1))
"""
    for name in ("AS", "CPU", "FSIZE", "NOFILE", "CORE", "NPROC")
}
GOALS = {
    "signals": SIGNALS,
    "processes": PROCESSES,
    "network": NETWORK,
    "files": FILES,
    "secrets": SECRETS,
    "kernel": KERNEL,
    "limits": LIMITS,
    "names": NAMES,
}
NOT_BARE = {
    "timer of another thread", "text put into a terminal", "the parent's group", "second set of numbers (x32)",
    "exec of a file in memory", "mount", "chroot",
}  # fmt: skip
"""Programs that do nothing without walls either, on the machines we know, or that only root should not try there."""


def all_programs() -> Iterator[tuple[str, str, str, bool]]:
    """Goal, name, source, and whether it succeeds without walls."""
    for goal, sources in GOALS.items():
        for name, source in sources.items():
            yield goal, name, source, name not in NOT_BARE
