#!/usr/bin/env python3
"""Makes the samples beside it and what importing them must give, with nothing of pagelab's.

Run it in its folder; it needs the `zstd` command. The samples are committed, so the tests need neither.

For lackey.txt and champsim.bin (plain, .gz, .xz, .zst) it writes NAME.accesses.csv (kind, vaddr, size, pc, gap in
order) and NAME.mappings.csv (addr, len, executable), following the documentation of the import:
- an instruction is counted by the gap of its first access;
- the first instruction that touches a code page is an access of kind 3 (fetch), before the instruction's data accesses;
- instructions after the last access are counted by a last fetch;
- accesses of more than 4096 bytes are cut (above 16,384 they are refused);
- ChampSim's accesses have 8 bytes, its fetches 1; loads come before stores;
- touched pages not more than 1 MiB apart are one mapping, executable if one of its pages was executed.
"""

import csv
import gzip
import lzma
import random
import struct
import subprocess

LOAD, STORE, MODIFY, FETCH = range(4)
PAGE = 4096


class Expected:
    def __init__(self):
        self.rows, self.pending, self.code, self.pages = [], 0, set(), set()

    def instruction(self, pc, size):
        self.pc, self.size = pc, size
        self.pending += 1
        pages = set(range(pc // PAGE, (pc + size - 1) // PAGE + 1))
        if not pages <= self.code:
            self.row(FETCH, pc, size)
        self.code |= pages

    def access(self, kind, addr, size):
        while size > 0:
            self.row(kind, addr, min(size, 4096))
            addr, size = addr + 4096, size - 4096

    def row(self, kind, addr, size):
        self.rows.append((kind, addr, size, self.pc, self.pending))
        self.pending = 0
        self.pages |= set(range(addr // PAGE, (addr + size - 1) // PAGE + 1))

    def write(self, name):
        if self.pending:
            self.row(FETCH, self.pc, self.size)
        with open(f"{name}.accesses.csv", "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(self.rows)
        mappings = []
        for page in sorted(self.pages):
            if mappings and page - mappings[-1][-1] - 1 <= (1 << 20) // PAGE:
                mappings[-1].append(page)
            else:
                mappings.append([page])
        with open(f"{name}.mappings.csv", "w", newline="") as file:
            for pages in mappings:
                length = (pages[-1] + 1 - pages[0]) * PAGE
                executable = int(any(page in self.code for page in pages))
                csv.writer(file, lineterminator="\n").writerow((pages[0] * PAGE, length, executable))


def data_address(draw):
    area = draw.choice([0x1FFEFFE000, 0x4A2B000, 0x4A2B000 + (3 << 20), 0x7F12_3456_7000])
    return area + draw.randrange(4 * PAGE)


def lackey():
    draw, expected, lines = random.Random(20), Expected(), []
    lines += ["==4711== Lackey, an example Valgrind tool", "==4711== Command: ./prog", "==4711== ", ""]
    pc = 0x401FF0
    for number in range(600):
        size = draw.randrange(1, 16)
        lines.append(f"I  {pc:08x},{size}")
        expected.instruction(pc, size)
        if number < 590:
            for _ in range(draw.choice([0, 0, 0, 1, 1, 2])):
                letter, kind = draw.choice([("L", LOAD), ("L", LOAD), ("S", STORE), ("M", MODIFY)])
                addr, size_bytes = data_address(draw), draw.choice([1, 2, 4, 8, 16, 32, 832])
                if number == 300:
                    size_bytes = 10_000
                lines.append(f" {letter} {addr:08x},{size_bytes}")
                expected.access(kind, addr, size_bytes)
        if number == 200:
            lines += ["--4711-- some remark", "**4711** another", "==4711== and a warning, with 12,3"]
        pc = pc + size if draw.random() < 0.95 else draw.choice([0x401000, 0x402000, 0x5000FF9]) + draw.randrange(64)
    lines += ["==4711== ", "==4711== Exit code:       0"]
    expected.write("lackey")
    return ("\n".join(lines) + "\n").encode()


def champsim():
    draw, expected, records = random.Random(21), Expected(), []
    pc = 0x400FC0
    for _ in range(500):
        loads = [data_address(draw) if draw.random() < 0.15 else 0 for _ in range(4)]
        stores = [data_address(draw) if draw.random() < 0.15 else 0 for _ in range(2)]
        branch = draw.random() < 0.1
        taken = branch and draw.random() < 0.5
        registers = [draw.randrange(64) for _ in range(6)]
        records.append(struct.pack("<QBB2B4B2Q4Q", pc, branch, taken, *registers, *stores, *loads))
        expected.instruction(pc, 1)
        for kind, addresses in ((LOAD, loads), (STORE, stores)):
            for addr in filter(None, addresses):
                expected.access(kind, addr, 8)
        pc = pc + draw.randrange(1, 9) if not taken else 0x400F00 + draw.randrange(0x400)
    expected.write("champsim")
    return b"".join(records)


for name, data in (("lackey.txt", lackey()), ("champsim.bin", champsim())):
    with open(name, "wb") as file:
        file.write(data)
    half = len(data) // 2
    with open(f"{name}.gz", "wb") as file:
        # Two members, as `cat a.gz b.gz` makes them.
        file.write(gzip.compress(data[:half], mtime=0) + gzip.compress(data[half:], mtime=0))
    with open(f"{name}.xz", "wb") as file:
        file.write(lzma.compress(data[:half]) + lzma.compress(data[half:]))
    subprocess.run(["zstd", "-q", "-f", "-19", name, "-o", f"{name}.zst"], check=True)
