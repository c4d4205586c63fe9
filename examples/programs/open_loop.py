"""Starts a program again and again at fixed times, whether or not earlier ones have ended.

python open_loop.py --per-second 20 --count 40 -- CMD…
"""

import argparse
import subprocess
import sys
import time


def main() -> None:
    """Starts the programs, waits for all, and says how many there were."""
    parser = argparse.ArgumentParser(description="Starts a program again and again at fixed times.")
    parser.add_argument("--per-second", type=float, default=20, help="starts per second (default 20)")
    parser.add_argument("--count", type=int, default=40, help="starts (default 40)")
    parser.add_argument("command", nargs="+", help="the program and its arguments, after --")
    arguments = parser.parse_args()
    if arguments.per_second <= 0 or arguments.count <= 0:
        parser.error("--per-second and --count must be above 0")
    begin = time.monotonic()
    started = []
    for number in range(arguments.count):
        time.sleep(max(begin + number / arguments.per_second - time.monotonic(), 0))
        started.append(subprocess.Popen(arguments.command, stdout=subprocess.DEVNULL))
    failed = sum(process.wait() != 0 for process in started)
    if failed:
        sys.exit(f"error: {failed} of {arguments.count} processes failed")
    print(f"open_loop: {arguments.count} processes in {time.monotonic() - begin:.2f} s")


if __name__ == "__main__":
    main()
