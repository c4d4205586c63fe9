"""A function as a service: reads a picture of letters, separates ink from paper, and counts the letters.

python faas.py PICTURE          decodes a grey PNG and prints the threshold and the number of letters
python faas.py --make PICTURE   makes such a picture

Each invocation is a process of its own, as where nothing is kept warm. Memory is first touched by the interpreter's
start, then by its modules, and then by the function's lists.
"""

import argparse
import itertools
import struct
import sys
import zlib
from pathlib import Path

SIGNATURE = b"\x89PNG\r\n\x1a\n"
WIDTH, HEIGHT = 384, 256
CELL = 32
"""Pixels from one letter to the next, across and down"""
PLAIN, LEFT, ABOVE = range(3)
"""How PNG filters a row: bytes as they are, less those to the left, or less those above"""


def make() -> bytes:
    """A picture with a letter in each cell, on paper that gets darker towards the bottom."""
    rows = bytearray()
    above = bytes(WIDTH)
    for y in range(HEIGHT):
        row = bytes(_shade(x, y) for x in range(WIDTH))
        if y % 2:
            rows += bytes([ABOVE, *((a - b) % 256 for a, b in zip(row, above, strict=True))])
        else:
            rows += bytes([LEFT, row[0], *((b - a) % 256 for a, b in itertools.pairwise(row))])
        above = row
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows))), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def _shade(x: int, y: int) -> int:
    letter, noise = x // CELL + y // CELL * 5, (x * 7919 + y * 104_729) % 23
    column, row = x % CELL - CELL // 4, y % CELL - CELL // 4
    inside = 0 <= column < CELL // 2 and 0 <= row < CELL // 2
    # All letters have the strokes on the left and in the middle. These two touch each other and all others.
    ink = column < 4 or 6 <= row < 10
    ink |= any(stroke and letter >> bit & 1 for bit, stroke in enumerate((row < 4, column >= 12, row >= 12)))
    return (40 if ink and inside else 230 - y * 80 // HEIGHT) - noise


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def decode(png: bytes) -> list[list[int]]:
    """The rows of a grey picture of 8 bits per pixel."""
    if not png.startswith(SIGNATURE):
        raise ValueError("this is not a PNG")
    at, packed, width = len(SIGNATURE), b"", 0
    while at < len(png):
        (length,), kind = struct.unpack_from(">I", png, at), png[at + 4 : at + 8]
        data = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, _, *form = struct.unpack(">IIBBBBB", data)
            if form != [8, 0, 0, 0, 0]:
                raise ValueError("only grey pictures of 8 bits per pixel are known")
        elif kind == b"IDAT":
            packed += data
        at += length + 12
    raw, rows = zlib.decompress(packed), []
    above = [0] * width
    for begin in range(0, len(raw), width + 1):
        row = list(raw[begin + 1 : begin + 1 + width])
        if raw[begin] == LEFT:
            left = 0
            for x, value in enumerate(row):
                left = row[x] = (value + left) & 255
        elif raw[begin] == ABOVE:
            row = [(value + other) & 255 for value, other in zip(row, above, strict=True)]
        elif raw[begin] != PLAIN:
            raise ValueError(f"filter {raw[begin]} is not known")
        rows.append(row)
        above = row
    return rows


def threshold(rows: list[list[int]]) -> int:
    """The shade that separates dark from light best, by Otsu's method."""
    counts = [0] * 256
    for row in rows:
        for value in row:
            counts[value] += 1
    pixels, total = sum(counts), sum(value * count for value, count in enumerate(counts))
    dark, dark_total, best, best_variance = 0, 0, 0, -1.0
    for value, count in enumerate(counts):
        dark += count
        dark_total += value * count
        if 0 < dark < pixels:
            difference = dark_total / dark - (total - dark_total) / (pixels - dark)
            variance = dark * (pixels - dark) * difference**2
            if variance > best_variance:
                best, best_variance = value, variance
    return best


def letters(rows: list[list[int]], limit: int) -> int:
    """How many connected dark regions there are: runs of pixels, joined with those that they touch in the row above."""
    parent: list[int] = []

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    above: list[int] = []
    for row in rows:
        labels, label = [-1] * len(row), -1
        for x, value in enumerate(row):
            if value > limit:
                label = -1
                continue
            if label < 0:
                label = len(parent)
                parent.append(label)
            if above and above[x] >= 0:
                parent[root(label)] = root(above[x])
            labels[x] = label
        above = labels
    return sum(root(label) == label for label in range(len(parent)))


def main() -> None:
    """Makes a picture, or reads one."""
    parser = argparse.ArgumentParser(description="Counts the letters in a picture.")
    parser.add_argument("picture", type=Path)
    parser.add_argument("--make", action="store_true", help="make the picture instead of reading it")
    arguments = parser.parse_args()
    if arguments.make:
        arguments.picture.write_bytes(make())
        return
    try:
        rows = decode(arguments.picture.read_bytes())
    except (OSError, ValueError, zlib.error, struct.error) as error:
        sys.exit(f"error: {arguments.picture}: {error}")
    limit = threshold(rows)
    print(f"faas: {letters(rows, limit)} letters, threshold {limit}")


if __name__ == "__main__":
    main()
