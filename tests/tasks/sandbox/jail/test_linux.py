"""The filter of system calls, interpreted as the kernel would."""

import errno
import itertools
import struct

import pytest

from unmask.tasks.sandbox.jail import linux


def run_filter(program: bytes, machine: int, number: int, argument: int = 0) -> int:
    """What the kernel would do: interpret the filter on one system call."""
    data = struct.pack("=iIQQ", number, machine, 0, argument)
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
