"""How fast traces of other tools are imported: `python benches/foreign_traces.py [RECORDS]`, by default 2 million.

Makes a plain file of each format and imports it. Rates count CPU seconds in user mode of all threads, writing the trace
included. The accesses are half on a stack of a page, half at random in 8 MiB.
"""

import resource
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pagelab

Array = np.ndarray[Any, np.dtype[Any]]

CHUNK = 500_000


def _chunks(records: int, draw: np.random.Generator) -> Iterator[tuple[Array, Array, Array]]:
    """What records are (0 to 1), addresses of data, and of instructions."""
    for begin in range(0, records, CHUNK):
        count = min(CHUNK, records - begin)
        stack, heap = draw.integers(0, 512, count), draw.integers(0, 1 << 20, count)
        places = np.where(draw.random(count) < 0.5, 0x7FFC_0000_0000 + stack * 8, 0x7F00_0000_0000 + heap * 8)
        yield draw.random(count), places, 0x40_0000 + np.arange(begin, begin + count) * 4 % 65536


def _drmemtrace(kinds: Array, places: Array, pcs: Array) -> bytes:
    records = np.zeros(len(kinds), np.dtype([("type", "<u2"), ("size", "<u2"), ("address", "<u8")]))
    fetches = kinds < 0.6
    records["type"] = np.where(fetches, 10, np.where(kinds < 0.88, 0, 1))
    records["size"] = np.where(fetches, 4, 8)
    records["address"] = np.where(fetches, pcs, places)
    return records.tobytes()


def _champsim(form: list[tuple[str, str] | tuple[str, str, int]]) -> Callable[[Array, Array, Array], bytes]:
    def make(kinds: Array, places: Array, pcs: Array) -> bytes:
        records = np.zeros(len(kinds), np.dtype(form))
        records["pc"] = pcs
        records["loads"][:, 0] = np.where(kinds < 0.25, places, 0)
        records["stores"][:, 0] = np.where(kinds > 0.9, places, 0)
        return records.tobytes()

    return make


def _lackey(kinds: Array, places: Array, pcs: Array) -> bytes:
    rows = zip(kinds.tolist(), places.tolist(), pcs.tolist(), strict=True)
    text = (
        f"I  {pc:08x},4\n" if kind < 0.6 else f" {'LLS'[int((kind - 0.6) * 7.5)]} {place:08x},8\n"
        for kind, place, pc in rows
    )
    return "".join(text).encode()


def _loads(kinds: Array, places: Array, _: Array) -> bytes:
    rows = zip(kinds.tolist(), places.tolist(), strict=True)
    return "".join(f"{'LD' if kind < 0.8 else 'ST'} 0x{place:x}\n" for kind, place in rows).encode()


def _instructions(kinds: Array, places: Array, _: Array) -> bytes:
    rows = zip(kinds.tolist(), places.tolist(), strict=True)
    return "".join(f"{int(k * 5)} {p}\n" if k < 0.7 else f"{int(k * 5)} {p} {p + 64}\n" for k, p in rows).encode()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _gem5(kinds: Array, places: Array, _: Array) -> bytes:
    out = bytearray()
    for tick, (kind, place) in enumerate(zip(kinds.tolist(), places.tolist(), strict=True)):
        packet = b"\x08" + _varint(10**9 + 500 * tick) + (b"\x10\x01" if kind < 0.7 else b"\x10\x04")
        packet += b"\x18" + _varint(place) + b"\x20\x08\x28\x00\x30\x01"
        out += bytes([len(packet)]) + packet
    return bytes(out)


def _perf(_: Array, places: Array, pcs: Array) -> bytes:
    rows = enumerate(zip(places.tolist(), pcs.tolist(), strict=True))
    event = "cpu/mem-loads,ldlat=30/P:"
    return "".join(f"  sort 812/814 7.{at % 10**6:06}: {event} {p:16x} {pc:16x}\n" for at, (p, pc) in rows).encode()


def _perf_memory(_: Array, places: Array, pcs: Array) -> bytes:
    rows = enumerate(zip(places.tolist(), pcs.tolist(), strict=True))
    event = "cpu/mem-loads,ldlat=30/P:"
    source = "5080022 |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A"
    return "".join(
        f"  sort 812/814 [003] 7.{at % 10**6:06}: 1 {event} {p:16x} {source} {at % 300} {pc:16x} f+0x1 (/lib/x.so)\n"
        for at, (p, pc) in rows
    ).encode()


def _pinatrace(kinds: Array, places: Array, pcs: Array) -> bytes:
    rows = zip(kinds.tolist(), places.tolist(), pcs.tolist(), strict=True)
    return "".join(f"0x{pc:x}: {'R' if kind < 0.7 else 'W'} 0x{place:x}\n" for kind, place, pc in rows).encode()


# Samples with the instruction's address, process and thread, time, address and data source.
PERF_SAMPLE = np.dtype(
    [("head", "<u8"), ("ip", "<u8"), ("tid", "<u8"), ("time", "<u8"), ("addr", "<u8"), ("src", "<u8")]
)
PERF_FIELDS = 1 | 2 | 4 | 8 | 1 << 15


def _perf_data(kinds: Array, places: Array, pcs: Array) -> bytes:
    records = np.zeros(len(kinds), PERF_SAMPLE)
    records["head"] = 9 | 2 << 32 | PERF_SAMPLE.itemsize << 48
    records["ip"], records["addr"] = pcs, places
    records["tid"], records["src"] = 812 << 32 | 812, np.where(kinds < 0.7, 2, 4)
    records["time"] = np.arange(len(kinds))
    return records.tobytes()


def _perf_data_head(count: int) -> bytes:
    """The header and one event's attribute."""
    event = struct.pack("<IIQQQ", 4, 128, 0x1CD, 1, PERF_FIELDS).ljust(128, b"\0") + bytes(16)
    sections = (104, len(event), 104, len(event), 104 + len(event), count * PERF_SAMPLE.itemsize)
    return b"PERFILE2" + struct.pack("<6Q", *sections).ljust(96, b"\0") + event


INPUT: list[tuple[str, str] | tuple[str, str, int]] = [
    ("pc", "<u8"),
    ("flags", "u1", 2),
    ("registers", "u1", 6),
    ("stores", "<u8", 2),
    ("loads", "<u8", 4),
]
CLOUDSUITE: list[tuple[str, str] | tuple[str, str, int]] = [
    ("pc", "<u8"),
    ("flags", "u1", 2),
    ("registers", "u1", 14),
    ("stores", "<u8", 4),
    ("loads", "<u8", 4),
    ("ids", "u1", 8),
]
HEADER = b"\x0a\x03mon\x18\x80\xa0\x94\xa5\x8d\x1d"
FORMATS: dict[str, tuple[bytes | Callable[[int], bytes], Callable[[Array, Array, Array], bytes]]] = {
    "drmemtrace": (struct.pack("<HHQHHQHHQ", 25, 0, 5, 22, 0, 7, 24, 0, 7), _drmemtrace),
    "champsim": (b"", _champsim(INPUT)),
    "champsim-cloudsuite": (b"", _champsim(CLOUDSUITE)),
    "lackey": (b"==1== Lackey\n", _lackey),
    "gem5": (b"gem5" + bytes([len(HEADER)]) + HEADER, _gem5),
    "ramulator": (b"", _loads),
    "ramulator, SimpleO3": (b"", _instructions),
    "pinatrace": (b"", _pinatrace),
    "perf-data": (_perf_data_head, _perf_data),
    "perf": (b"", _perf),
    "perf, mem": (b"", _perf_memory),
}


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    print(f"{'format':20} {'records':>11} {'accesses':>11} {'M per user second':>18} {'M per second':>13}")
    for name, (head, make) in FORMATS.items():
        count = records // 4 if name in ("perf", "perf, mem") else records
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace"
            with path.open("wb") as file:
                file.write(head if isinstance(head, bytes) else head(count))
                for kinds, places, pcs in _chunks(count, np.random.default_rng(1)):
                    file.write(make(kinds, places, pcs))
            begin, wall = resource.getrusage(resource.RUSAGE_SELF).ru_utime, time.monotonic()
            done = pagelab.import_trace(path, Path(folder) / "out.trace", format=name.split(",")[0])
            user, wall = resource.getrusage(resource.RUSAGE_SELF).ru_utime - begin, time.monotonic() - wall
        print(
            f"{name:20} {count:11,} {done.accesses:11,} {count / user / 1e6:18.1f} {count / wall / 1e6:13.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
