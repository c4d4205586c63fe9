"""Making huge pages of a running process's small ones, to see what that brings: MADV_COLLAPSE by process_madvise.

Source: process_madvise(2), madvise(2), Linux 6.1 and later; it needs CAP_SYS_NICE and the right to look at the process.
Deviations: it is not undone. The kernel copies the pages in this process's time, while faults of the program on the
    same mapping wait.
"""

import ctypes
import errno
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pagelab._engine import UsageError
from pagelab.host.contiguity import ProcessEndedError
from pagelab.observe.mappings import HUGE_BYTES, Mapping, mappings
from pagelab.observe.regions import Region
from pagelab.observe.verdict import Judgement, Kind

WORTH = "worth"
"""Instead of an address: all mappings that are worth a recording"""
_PROCESS_MADVISE, _MADV_COLLAPSE = 440, 25
_AT_ONCE = 16 * HUGE_BYTES
"""Bytes per call: between two calls, Ctrl-C ends it, and the program gets its locks"""


class _Range(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("length", ctypes.c_size_t))


@dataclass(frozen=True)
class Collapse:
    """What became of a mapping."""

    pid: int
    begin: int
    end: int
    huge_before: int
    huge_after: int
    resident_before: int
    resident_after: int
    seconds: float
    cpu_seconds: float
    """Of this process, in which the kernel copies"""
    refusals: dict[str, int]
    """Why parts were left as they are, with the number of calls"""


def chosen(wanted: Sequence[str], judgements: Sequence[Judgement]) -> list[Region]:
    """The mappings that are meant: `worth`, or addresses in them.

    Raises:
        UsageError: an address lies in no mapping that may have huge pages, or none is worth a recording.
    """
    possible = [one for one in judgements if one.region.may_be_huge]
    regions: dict[int, Region] = {}
    for word in wanted:
        if word == WORTH:
            matches = [one.region for one in possible if one.kind is Kind.WORTH_A_RECORDING]
            if not matches:
                raise UsageError("--try worth: no mapping is worth a recording; name one by its address")
        else:
            address = _address(word)
            matches = [one.region for one in possible if one.region.begin <= address < one.region.end]
            if not matches:
                raise _nothing_there(word)
        regions.update((id(region), region) for region in matches)
    return list(regions.values())


def ensure_valid(wanted: Sequence[str]) -> None:
    """Refuses what is neither `worth` nor an address, before anything is observed."""
    for word in wanted:
        if word != WORTH:
            _address(word)


def ensure_mapped(wanted: Sequence[str], pids: Iterable[int]) -> None:
    """Refuses addresses where no process has memory that may have huge pages, before anything is observed."""
    there: list[Mapping] = []
    for pid in pids:
        with suppress(ProcessEndedError, UsageError):
            there += [one for one in mappings(pid) if one.anonymous and one.size >= HUGE_BYTES]
    for word in wanted:
        if word != WORTH and not any(one.begin <= _address(word) < one.end for one in there):
            raise _nothing_there(word)


def _nothing_there(word: str) -> UsageError:
    return UsageError(f"--try {word}: no anonymous mapping of 2 MiB or more is there")


def _address(word: str) -> int:
    try:
        return int(word, 16)
    except ValueError:
        raise UsageError(f"--try takes `worth` or an address such as 0x7f38f0c00000, not {word!r}") from None


def collapse(region: Region) -> Collapse:
    """Asks the kernel for huge pages in all of a mapping.

    Raises:
        ProcessEndedError: the process has ended.
        UsageError: this user may not, or the kernel cannot.
    """
    first = -(-region.begin // HUGE_BYTES) * HUGE_BYTES
    last = region.end // HUGE_BYTES * HUGE_BYTES
    huge, resident = _amounts(region)
    refusals: dict[str, int] = {}
    begin, cpu_begin = time.monotonic(), time.process_time()
    handle = os.pidfd_open(region.pid)
    try:
        for at in range(first, last, _AT_ONCE):
            code = _advise(handle, at, min(_AT_ONCE, last - at))
            if code in (errno.EPERM, errno.ENOSYS):
                raise UsageError(_reason(code))
            if code:
                refusals[_reason(code)] = refusals.get(_reason(code), 0) + 1
    finally:
        os.close(handle)
    seconds, cpu = time.monotonic() - begin, time.process_time() - cpu_begin
    huge_after, resident_after = _amounts(region)
    return Collapse(
        region.pid, region.begin, region.end, huge, huge_after, resident, resident_after, seconds, cpu, refusals
    )


def _advise(handle: int, begin: int, length: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    part = _Range(begin, length)
    result = libc.syscall(_PROCESS_MADVISE, handle, ctypes.byref(part), ctypes.c_size_t(1), _MADV_COLLAPSE, 0)
    return ctypes.get_errno() if result < 0 else 0


def _amounts(region: Region) -> tuple[int, int]:
    own = [one for one in mappings(region.pid) if region.begin <= one.begin < region.end]
    return sum(one.huge for one in own), sum(one.resident for one in own)


def _reason(code: int) -> str:
    reasons = {
        errno.EPERM: "process_madvise needs CAP_SYS_NICE, and the right to look at the process",
        errno.ENOSYS: "this kernel has no process_madvise (Linux 5.10)",
        errno.EINVAL: "the memory is marked as not for huge pages, or the kernel has no MADV_COLLAPSE (Linux 6.1)",
        errno.ENOMEM: "there was no free huge page, or nothing is mapped there",
        errno.EAGAIN: "the kernel had no huge page just then",
        errno.EBUSY: "the pages were in use by the kernel",
    }
    return reasons.get(code, os.strerror(code))
