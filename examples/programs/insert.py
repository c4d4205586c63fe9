"""Inserts records into a memcached server, as fast as it takes them, and then ends the server.

python insert.py SOCKET --records 200000

Waits for the server's socket. Sends batches of `set` on several connections, so that all threads of the server work,
and checks that all records are there. The server gets SIGTERM, also if something fails.
"""

import argparse
import contextlib
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

BATCH = 64
"""Records sent at once on a connection"""
PATIENCE_SECONDS = 120
POLL_SECONDS = 0.002
STORED = b"STORED\r\n"


class Connection:
    """A connection to the server, as memcached's doc/protocol.txt has it."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(PATIENCE_SECONDS)
        self._socket.connect(str(path))
        self._expected = 0

    def send_sets(self, first: int, end: int, pool: bytes, value_bytes: int) -> None:
        """Sends a batch, and does not wait for the answer."""
        parts = []
        for number in range(first, end):
            at = number * 97 % (len(pool) - value_bytes)
            parts.append(b"set user%019d 0 0 %d\r\n%b\r\n" % (number, value_bytes, pool[at : at + value_bytes]))
        self._socket.sendall(b"".join(parts))
        self._expected += len(parts)

    def receive_stored(self) -> None:
        """Waits until all records sent are stored."""
        answers = b""
        while answers.count(b"\n") < self._expected:
            answers += self._receive()
        refusal = answers.replace(STORED, b"")
        if refusal:
            raise ConnectionError(f"the server says {refusal[:80].decode(errors='replace').strip()!r}")
        self._expected = 0

    def statistics(self) -> dict[str, str]:
        """What the server says of itself."""
        self._socket.sendall(b"stats\r\n")
        answer = b""
        while not answer.endswith(b"END\r\n"):
            answer += self._receive()
        return {name: value for _, name, value in (line.split(" ", 2) for line in answer.decode().splitlines()[:-1])}

    def _receive(self) -> bytes:
        part = self._socket.recv(1 << 16)
        if not part:
            raise ConnectionError("the server ended the connection")
        return part


def connect(path: Path) -> Connection:
    """The first connection: waits until the server listens."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return Connection(path)
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > give_up:
                raise
        time.sleep(POLL_SECONDS)


def insert(path: Path, connections: list[Connection], records: int, value_bytes: int) -> None:
    """Inserts all records, a batch on each connection at a time."""
    pool = random.Random(1).randbytes(1 << 20).hex().encode()
    turn = len(connections) * BATCH
    for begin in range(0, records, turn):
        starts = range(begin, min(begin + turn, records), BATCH)
        for connection, first in zip(connections, starts, strict=False):
            connection.send_sets(first, min(first + BATCH, records), pool, value_bytes)
        for connection in connections:
            connection.receive_stored()
    items = int(connections[0].statistics()["curr_items"])
    if items != records:
        raise ConnectionError(f"{path}: {items} of {records} records are there; give the server more memory (-m)")


def main() -> None:
    """Inserts the records and ends the server."""
    parser = argparse.ArgumentParser(description="Inserts records into a memcached server and ends it.")
    parser.add_argument("socket", type=Path, help="the server's Unix socket (memcached -s)")
    parser.add_argument("--records", type=int, default=200_000, help="default 200000")
    parser.add_argument("--value-bytes", type=int, default=1000, help="default 1000")
    parser.add_argument("--connections", type=int, default=4, help="default 4")
    arguments = parser.parse_args()
    if min(arguments.records, arguments.value_bytes, arguments.connections) <= 0:
        parser.error("--records, --value-bytes and --connections must be above 0")
    try:
        connections = [connect(arguments.socket)]
        server = int(connections[0].statistics()["pid"])
        try:
            connections += [Connection(arguments.socket) for _ in range(arguments.connections - 1)]
            begin = time.monotonic()
            insert(arguments.socket, connections, arguments.records, arguments.value_bytes)
            print(f"insert: {arguments.records} records in {time.monotonic() - begin:.2f} s")
        finally:
            os.kill(server, signal.SIGTERM)
            # The server looks at signals when something else wakes it up, and else once per second.
            with contextlib.suppress(OSError):
                Connection(arguments.socket)
    except OSError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
