"""Linux's performance events of threads: counted, or sampled into rings that are read from time to time.

Models: nothing; perf_event_open(2) is called directly. So nothing is written to disk, no process is stopped, and the
    kernel releases every event when this process ends, however it ends.
Source: perf_event_open(2), include/uapi/linux/perf_event.h.
Deviations: an event on a thread is inherited by the threads and processes that it starts. The kernel allows rings of
    inherited events for one CPU at a time, so each sampled event is opened for each thread and each CPU. Each of these
    counts its own events up to the period, so a thread with fewer events than that has no sample.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

_SYSCALLS = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
_SOFTWARE = 1
_INHERIT, _DISABLED, _ENABLE_ON_EXEC = 1 << 1, 1 << 0, 1 << 12
_EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 5, 1 << 6
_CLOSE_ON_EXEC = 1 << 3
_IP, _TID, _TIME, _ADDRESS, _CALL_CHAIN = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 5
# If samples told their period, the kernel would sample each event of the kernel's own (`perf_swevent_event`).
_SAMPLED = _IP | _TID | _TIME | _ADDRESS | _CALL_CHAIN
# Times are those of `time.monotonic`.
_USE_CLOCK = 1 << 25
_SET_OUTPUT, _ENABLE, _DISABLE, _SET_PERIOD = 0x2405, 0x2400, 0x2401, 0x40082404
_LOST, _SAMPLE = 2, 9
# Markers in call chains: what follows was executed in the kernel, or by the program.
KERNEL_MARK, USER_MARK = 2**64 - 128, 2**64 - 512
_FIRST_MARK = 2**64 - 4096
_HEADER = struct.Struct("<IHH")
_BODY = struct.Struct("<QIIQQQ")
_ATTRIBUTES = struct.Struct("<IIQQQQQIIQQQQIiQIHH")
_HEAD, _TAIL, _OFFSET = 1024, 1032, mmap.PAGESIZE
# Of a power of two; two rings per CPU fit into what kernel.perf_event_mlock_kb allows everybody.
_RING_BYTES = 32 * mmap.PAGESIZE
_DEPTH = 48
"""Entries of a call chain at most"""
_PARANOIA = Path("/proc/sys/kernel/perf_event_paranoid")


class Software(IntEnum):
    """Events that the kernel counts itself (`enum perf_sw_ids`)."""

    CPU_CLOCK = 0
    TASK_CLOCK = 1
    PAGE_FAULTS = 2
    CONTEXT_SWITCHES = 3
    MAJOR_FAULTS = 6


class EventsRefusedError(Exception):
    """The kernel gives this user no events; the text says why."""


class ThreadEndedError(Exception):
    """The thread has ended before its event was opened."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sampled event."""

    pid: int
    seconds: float
    """When it was, by `time.monotonic`"""
    address: int
    """Of a fault: the address whose translation was missing"""
    period: int
    """Events that it stands for"""
    kernel: tuple[int, ...]
    """Kernel code that ran, the innermost first; empty if the program's own did, or if the kernel hides it"""
    user: tuple[int, ...]
    """The program's code, the innermost first, as far as its frame pointers lead"""
    cpu: int = -1
    """The CPU that it ran on"""


@dataclass(frozen=True)
class Access:
    """What of events this user may see."""

    kernel: bool
    """Events and call chains of kernel code, too"""


def access() -> Access:
    """What this user may see.

    Raises:
        EventsRefusedError: nothing.
    """
    for kernel in (True, False):
        try:
            os.close(_open(Software.TASK_CLOCK, os.getpid(), -1, kernel=kernel))
            return Access(kernel)
        except PermissionError:
            continue
        except OSError as error:
            raise EventsRefusedError(_reason(error)) from None
    raise EventsRefusedError(_reason(PermissionError(errno.EACCES, "")))


def count(event: Software, thread: int, seen: Access, *, on_execution: bool = False) -> int:
    """A counter of a thread and of what it starts; a descriptor."""
    return _opened(event, thread, -1, seen, on_execution, 0)


def read(descriptor: int) -> int:
    """The count of an event so far, that of ended threads included."""
    return int.from_bytes(os.read(descriptor, 8), "little")


def close(descriptor: int) -> None:
    os.close(descriptor)


class Rings:
    """A ring per CPU for the samples of one event."""

    def __init__(self, event: Software, seen: Access, period: int) -> None:
        self.event, self._seen, self.period = event, seen, period
        self.lost = 0
        self.descriptors: list[int] = []
        self._maps: dict[int, tuple[int, mmap.mmap]] = {}

    def attach(self, thread: int, *, on_execution: bool = False) -> None:
        """Samples a thread and what it starts.

        Raises:
            ThreadEndedError: it has ended.
            EventsRefusedError: the kernel refuses it.
        """
        for cpu in online_cpus():
            descriptor = _opened(self.event, thread, cpu, self._seen, on_execution, self.period)
            self.descriptors.append(descriptor)
            try:
                if cpu in self._maps:
                    fcntl.ioctl(descriptor, _SET_OUTPUT, self._maps[cpu][0])
                else:
                    ring = mmap.mmap(descriptor, _RING_BYTES + _OFFSET, mmap.MAP_SHARED)
                    self._maps[cpu] = descriptor, ring
            except OSError as error:
                raise EventsRefusedError(_reason(error)) from None

    def enable(self, enabled: bool) -> None:
        """Begins or stops sampling, of the threads that were started meanwhile, too."""
        for descriptor in self.descriptors:
            fcntl.ioctl(descriptor, _ENABLE if enabled else _DISABLE, 0)

    def set_period(self, period: int) -> None:
        """Takes one of N events from now on."""
        if period != self.period:
            self.period = period
            for descriptor in self.descriptors:
                fcntl.ioctl(descriptor, _SET_PERIOD, struct.pack("<Q", period))

    def drain(self) -> Iterator[Sample]:
        """The samples since the last call."""
        for cpu, (_, ring) in self._maps.items():
            head, tail = struct.unpack_from("<QQ", ring, _HEAD)
            data = _between(ring, tail, head)
            struct.pack_into("<Q", ring, _TAIL, head)
            yield from self._samples(data, cpu)

    def close(self) -> None:
        for _, ring in self._maps.values():
            ring.close()
        for descriptor in self.descriptors:
            os.close(descriptor)
        self._maps.clear()
        self.descriptors.clear()

    def _samples(self, data: bytes, cpu: int) -> Iterator[Sample]:
        at = 0
        while at < len(data):
            kind, _, size = _HEADER.unpack_from(data, at)
            body = at + _HEADER.size
            if kind == _SAMPLE:
                yield _sample(data, body, self.period, cpu)
            elif kind == _LOST:
                self.lost += struct.unpack_from("<QQ", data, body)[1]
            at += size


def _between(ring: mmap.mmap, tail: int, head: int) -> bytes:
    begin, end = tail % _RING_BYTES + _OFFSET, head % _RING_BYTES + _OFFSET
    if head == tail:
        return b""
    return ring[begin:end] if begin < end else ring[begin : _OFFSET + _RING_BYTES] + ring[_OFFSET:end]


def _sample(data: bytes, at: int, period: int, cpu: int) -> Sample:
    # The instruction stands in the call chain, too.
    _, pid, _, nanoseconds, address, depth = _BODY.unpack_from(data, at)
    chain = struct.unpack_from(f"<{depth}Q", data, at + _BODY.size)
    parts: dict[int, list[int]] = {KERNEL_MARK: [], USER_MARK: []}
    part: list[int] = []
    for entry in chain:
        if entry >= _FIRST_MARK:
            part = parts.get(entry, [])
        else:
            part.append(entry)
    return Sample(pid, nanoseconds / 1e9, address, period, tuple(parts[KERNEL_MARK]), tuple(parts[USER_MARK]), cpu)


def online_cpus() -> list[int]:
    """The CPUs that run programs."""
    cpus: list[int] = []
    for part in Path("/sys/devices/system/cpu/online").read_text(encoding="ascii").strip().split(","):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


def _opened(event: Software, thread: int, cpu: int, seen: Access, on_execution: bool, period: int) -> int:
    try:
        return _open(event, thread, cpu, kernel=seen.kernel, on_execution=on_execution, period=period)
    except ProcessLookupError:
        raise ThreadEndedError from None
    except OSError as error:
        raise EventsRefusedError(_reason(error)) from None


def _open(event: Software, thread: int, cpu: int, *, kernel: bool, on_execution: bool = False, period: int = 0) -> int:
    flags = _INHERIT | _EXCLUDE_HYPERVISOR | _USE_CLOCK
    flags |= 0 if kernel else _EXCLUDE_KERNEL
    flags |= _DISABLED | _ENABLE_ON_EXEC if on_execution else 0
    attributes = _ATTRIBUTES.pack(
        *(_SOFTWARE, _ATTRIBUTES.size, event, period, _SAMPLED if period else 0, 0, flags),
        *(0, 0, 0, 0, 0, 0, 0, time.CLOCK_MONOTONIC, 0, 0, _DEPTH if period else 0, 0),
    )
    number = _SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(number, buffer, thread, cpu, -1, _CLOSE_ON_EXEC)
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(descriptor)


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSYS:
        return "this kernel has no performance events (CONFIG_PERF_EVENTS), or a sandbox hides them"
    if error.errno in (errno.EACCES, errno.EPERM):
        level = _PARANOIA.read_text(encoding="ascii").strip() if _PARANOIA.exists() else "unknown"
        return (
            f"the kernel refuses performance events (kernel.perf_event_paranoid is {level}; containers often forbid "
            "perf_event_open): run as root, grant CAP_PERFMON, or set the value to 1"
        )
    if error.errno == errno.EMFILE:
        return "there are more threads than this process may open events for (ulimit -n)"
    return f"performance events: {error.strerror}"
