"""The filter of system calls, interpreted as the kernel would."""

import errno
import itertools
import struct

import pytest

from unmask.tasks.sandbox.jail import linux


def run_filter(program: bytes, machine: int, number: int, *arguments: int) -> int:
    """What the kernel would do: interpret the filter on one system call."""
    data = struct.pack("=iIQ6Q", number, machine, 0, *[*arguments, 0, 0, 0, 0, 0, 0][:6])
    instructions = list(struct.iter_unpack("=HBBI", program))
    accumulator, position = 0, 0
    while True:
        operation, if_true, if_false, constant = instructions[position]
        position += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, constant)
        elif operation == 0x06:
            return constant
        else:
            test = {0x15: accumulator == constant, 0x35: accumulator >= constant, 0x45: accumulator & constant}
            position += if_true if test[operation] else if_false


@pytest.mark.parametrize(
    ("machine", "audit", "column"), [("x86_64", 0xC000003E, 0), ("aarch64", 0xC00000B7, 1)], ids=["x86_64", "aarch64"]
)
@pytest.mark.parametrize("forks", [True, False])
def test_filter(machine, audit, column, forks):
    allow, refuse, absent = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
    pid = 4321
    program = linux.filter_program(machine, pid, forks=forks, file_attributes=True)
    refused = [n[column] for n in (linux.REFUSED | linux.REFUSED_ON_FILES).values() if n[column] is not None]
    assert {run_filter(program, audit, number) for number in refused} == {refuse}
    assert run_filter(program, 0x40000003, 0) == refuse
    read, write, mmap, futex = ((0, 1, 9, 202), (63, 64, 222, 98))[column]
    assert {run_filter(program, audit, number) for number in (read, write, mmap, futex)} == {allow}
    assert run_filter(program, audit, 435) == absent
    clone, kill, tgkill, prlimit = ((56, 62, 234, 302), (220, 129, 131, 261))[column]
    thread = 0x3D0F00
    assert run_filter(program, audit, clone, thread) == allow
    assert run_filter(program, audit, clone, 17) == (refuse if forks else allow)
    assert run_filter(program, audit, clone, thread | linux.NEW_USER) == refuse
    for signal_call, target in itertools.product((kill, tgkill), (1, 0, -1 & 0xFFFFFFFF, pid + 1)):
        assert run_filter(program, audit, signal_call, target) == refuse
    assert run_filter(program, audit, kill, pid) == run_filter(program, audit, tgkill, pid) == allow
    assert [run_filter(program, audit, prlimit, target) for target in (0, pid, 1)] == [allow, allow, refuse]
    if machine == "x86_64":
        assert run_filter(program, audit, 0x40000000 + 41) == refuse
        assert {run_filter(program, audit, number) for number in (57, 58)} == {refuse if forks else allow}


@pytest.mark.parametrize(
    ("machine", "audit", "column"), [("x86_64", 0xC000003E, 0), ("aarch64", 0xC00000B7, 1)], ids=["x86_64", "aarch64"]
)
def test_filter_looks_at_arguments(machine, audit, column):
    allow, refuse, not_for_this = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOTTY
    program = linux.filter_program(machine, 4321, forks=True, file_attributes=True)
    fcntl, ioctl, socketpair, sendto = ((72, 16, 53, 44), (25, 29, 199, 206))[column]

    def ask(number: int, *arguments: int) -> int:
        return run_filter(program, audit, number, *arguments)

    copy, flags, lock = 0, 4, 6
    assert {ask(fcntl, 3, command, 8) for command in (copy, flags, lock, 1030)} == {allow}
    set_owner, set_signal, set_owner_ex, set_lease, notify, hint = 8, 10, 15, 1024, 1026, 1036
    for command in (set_owner, set_signal, set_owner_ex, set_lease, notify, hint, set_owner + (1 << 32)):
        assert ask(fcntl, 3, command, 8) == refuse
    assert {ask(ioctl, 3, command) for command in (0x5401, 0x5421, 0x541B)} == {allow}
    own, group, asynchronous, type_in, file_flags, verity = 0x8901, 0x8902, 0x5452, 0x5412, 0x40086602, 0x40806685
    assert {ask(ioctl, 3, c) for c in (own, group, asynchronous, type_in, file_flags, verity)} == {not_for_this}
    stream, datagram, raw, packets, close_on_exec = 1, 2, 3, 5, 0o2000000
    assert {ask(socketpair, 1, kind) for kind in (stream, stream | close_on_exec)} == {allow}
    assert {ask(socketpair, 1, k) for k in (datagram, raw, packets, datagram | close_on_exec)} == {refuse}
    assert ask(socketpair, 30, stream) == refuse
    assert ask(sendto, 3, 5000, 1, 0, 0, 0) == allow
    assert {ask(sendto, 3, 5000, 1, 0, address, 16) for address in (1, 1 << 32, 0x7FFF00000000)} == {refuse}
    # Nothing happens, and the program is told that it did.
    assert {ask(n[column]) for n in linux.IGNORED_ON_FILES.values() if n[column] is not None} == {0x50000}
    elsewhere = linux.filter_program(machine, 4321, forks=True, file_attributes=False)
    names = (linux.IGNORED_ON_FILES | linux.REFUSED_ON_FILES).values()
    assert {run_filter(elsewhere, audit, n[column]) for n in names if n[column] is not None} == {allow}
