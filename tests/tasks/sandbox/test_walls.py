"""Other processes, files, secrets and the network are out of a completion's reach."""

import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.sandboxed import PROBLEM, SHORT, WRONG, exceptions, judged, needs_seccomp, run
from unmask.tasks.sandbox import Limits, check_completion, probe

BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
DAEMON = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.closerange(0, 64)
        time.sleep(1000)
    os._exit(0)
os.wait()
print("started", flush=True)
"""


def test_other_processes_are_refused(mode):
    starts = ["os.fork()", "os.execv('/bin/true', ['true'])", "pty.fork()", "subprocess.run(['true'])"]
    starts += ["os.posix_spawn('/bin/true', ['true'], {})", "exit(os.system('true') != 0)"]
    verdicts = judged((f"{WRONG}\nimport os, pty, subprocess\n{start}\n" for start in starts), mode)
    assert not exceptions(starts, verdicts, "error")


@pytest.mark.parametrize(
    ("kind", "layers"),
    [
        ("namespace", ("seccomp", "uid")),
        ("namespace", ("seccomp",)),
        ("namespace", ("uid",)),
        ("namespace", ()),
        ("weak", ("seccomp", "uid")),
        ("weak", ("seccomp",)),
        ("weak", ("uid",)),
        ("weak", ()),
    ],
    ids=str,
)
def test_processes_are_counted(kind, layers, use):
    """With a few processes allowed, so that the walls behind the first one are tried as well."""
    mode = use(kind, layers)
    limits = Limits(wall_s=0.6, processes=4, memory_mb=128)
    few = run(
        """
        import os, time
        for number in range(20):
            try:
                if os.fork() == 0:
                    time.sleep(0.5)
                    os._exit(0)
            except OSError:
                break
        print(number)
        """,
        mode,
        limits,
    )
    # Not exact where the worker shares its user with processes that come and go.
    assert int(few.stdout) == 3 if "uid" in layers else int(few.stdout) < 8, few
    daemon = run(DAEMON, mode, limits)
    assert daemon.stdout == "started\n" or "uid" not in layers, daemon
    assert run(BOMB, mode, replace(limits, wall_s=0.3)).status == "timeout"


KILLS = {
    "parent": "os.kill(os.getppid(), 9)",
    "group": "os.killpg(os.getpgrp(), 9)",
    "own group": "os.kill(0, 9)",
    "everybody": "os.kill(-1, 9)",
    "neighbours": "[attempt(lambda: os.kill(pid, 9)) for pid in range(1, os.getpid())]",
    "threads": "signal.pthread_kill(threading.main_thread().ident, 9)",
    "limits": "resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))",
    "queue": "ctypes.CDLL(None).sigqueue(os.getppid(), 9, 0)",
    "pidfd": "signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)",
}


def test_killing_others(mode):
    needs_seccomp(mode, "without it the next to be killed would be these tests")
    attack = """
import ctypes, os, resource, signal, threading

def attempt(action):
    try:
        action()
    except OSError:
        pass

attempt(lambda: {kill})
"""
    verdicts = judged([WRONG + attack.replace("{kill}", kill) for kill in KILLS.values()], mode)
    assert not exceptions(KILLS, verdicts, "fail error")


@pytest.fixture
def victim() -> Iterator[Path]:
    """A file of the user in a folder where everybody may do everything."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    file = folder / "victim"
    file.write_text("untouched")
    file.chmod(0o666)
    yield file
    shutil.rmtree(folder)


def can_keep_files_apart(mode: str | None) -> bool:
    walls = probe.find_walls(mode)
    return walls.kind != "weak" or "landlock" in walls.layers


def test_writing_outside(victim, mode):
    if not can_keep_files_apart(mode):
        pytest.skip("this mode says that it cannot")
    before = victim.stat()
    result = run(
        f"""
        import os, shutil, sysconfig
        victim, folder = {str(victim)!r}, {str(victim.parent)!r}
        places = [folder, "/", "..", "/tmp", "/var/tmp", "/dev/shm", "/etc", "/usr/lib", sysconfig.get_path("stdlib")]
        actions = [
            lambda: open(victim, "w"),
            lambda: open(victim, "a"),
            lambda: open(victim, "r+"),
            lambda: os.truncate(victim, 0),
            lambda: os.remove(victim),
            lambda: os.rename(victim, "stolen"),
            lambda: os.link(victim, "linked"),
            lambda: os.setxattr(victim, "user.x", b"1"),
            lambda: shutil.rmtree(folder),
            lambda: os.chroot("."),
            *(lambda p=p: open(os.path.join(p, "unmask-was-here"), "w") for p in places),
            *(lambda p=p: os.mkdir(os.path.join(p, "unmask-was-here")) for p in places),
            *(lambda p=p: os.symlink("x", os.path.join(p, "unmask-was-here")) for p in places),
        ]
        for number, action in enumerate(actions):
            try:
                action()
                print("did", number)
            except OSError:
                pass
        # A weak mode says yes to these and does nothing: what comes of them shows in the file.
        for change in (
            lambda: os.chmod(victim, 0o777),
            lambda: os.utime(victim, (0, 0)),
            lambda: os.chown(victim, os.getuid(), os.getgid()),
        ):
            try:
                change()
            except OSError:
                pass
        os.symlink(folder, "way-out")
        try:
            open("way-out/x", "w")
            print("did follow")
        except OSError:
            pass
        """,
        mode,
    )
    assert (result.exit_code, result.stdout) == (0, ""), result
    assert victim.read_text() == "untouched"
    after = victim.stat()
    assert (after.st_mode, after.st_mtime, after.st_ctime) == (before.st_mode, before.st_mtime, before.st_ctime)
    assert list(victim.parent.iterdir()) == [victim]


@pytest.mark.parametrize("layers", [("seccomp", "uid"), ("seccomp",)], ids=str)
def test_file_system_is_read_only(layers, use):
    """Also for one who would have the right to write."""
    mode = use("namespace", layers)
    result = run(
        """
        import os, sysconfig
        for path in ("/", "/dev", "/dev/null", "/usr/lib", sysconfig.get_path("stdlib"), "."):
            print(bool(os.statvfs(path).f_flag & os.ST_RDONLY), end=" ")
        """,
        mode,
    )
    assert result.stdout.split() == ["True"] * 5 + ["False"], result


def test_reading_secrets(victim, mode, monkeypatch):
    monkeypatch.setenv("UNMASK_TEST_SECRET", "swordfish")
    victim.write_text("swordfish")
    result = run(
        f"""
        import os, glob
        print(dict(os.environ))
        for name in [{str(victim)!r}, *glob.glob("/proc/*/environ"), *glob.glob("/proc/*/cmdline"), "/etc/passwd"]:
            try:
                print(name, open(name, "rb").read())
            except OSError:
                pass
        """,
        mode,
    )
    assert result.exit_code == 0
    assert result.stdout.startswith("{}\n")
    if can_keep_files_apart(mode):
        assert result.stdout == "{}\n"
    elif "uid" in probe.find_walls(mode).layers:
        assert "swordfish" not in result.stdout


@pytest.mark.parametrize("layers", [("seccomp",), ("uid",), ()], ids=str)
def test_network_namespace_and_seccomp_each_suffice(layers, use):
    mode = use("namespace" if "seccomp" not in layers else "weak", layers)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        result = run(
            f"""
            import socket
            for address in [("127.0.0.1", {port}), ("8.8.8.8", 53)]:
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    try:
                        with socket.socket(socket.AF_INET, kind) as s:
                            s.settimeout(0.2)
                            s.connect(address)
                            s.send(b"x")
                            print("sent", address, kind)
                    except OSError:
                        pass
            """,
            mode,
        )
        assert (result.exit_code, result.stdout) == (0, ""), result
        with pytest.raises(TimeoutError):
            server.accept()


def test_sockets_of_a_completion(mode):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        address = server.getsockname()
        body = f"    import socket\n    socket.create_connection({address}, 1)\n    return 2 * x\n"
        verdict = check_completion(PROBLEM, body, SHORT, mode=mode)
        assert verdict.status == "error", verdict
        with pytest.raises(TimeoutError):
            server.accept()
    abstract = "    import socket\n    socket.socket(socket.AF_UNIX).bind('\\0x')\n    return 2 * x\n"
    assert check_completion(PROBLEM, abstract, SHORT, mode=mode).status in ("error", "pass")


def test_folder_is_removed_whatever_is_in_it():
    """Weak mode works on disk: read-only and very deep folders, and many files."""
    result = run(
        """
        import os
        for number in range(1000):
            os.close(os.open(f"file{number}", os.O_CREAT | os.O_WRONLY, 0o000))
        os.symlink("/", "root")
        os.mkfifo("pipe")
        os.makedirs("closed/inner")
        open("closed/inner/file", "w").close()
        os.mkdir("locked", 0o000)
        here = os.getcwd()
        for depth in range(1050):
            os.mkdir("0")
            os.chdir("0")
        open("deep", "w").close()
        print("built")
        """,
        "weak",
        Limits(wall_s=20, cpu_s=10),
    )
    assert result.stdout == "built\n", result
