"""The command `pagelab`, also as `python -m pagelab`."""

import os
import sys

_INTERRUPTED = 130
_STANDARD_STREAMS = range(3)


def _end_while_loading(*_: object) -> None:
    os.write(2, b"pagelab: error: interrupted\n")
    os._exit(_INTERRUPTED)


try:
    import signal
except KeyboardInterrupt:
    _end_while_loading()


def main() -> None:
    """Entry point of the console script."""
    _open_missing_streams()
    # Modules take a while to load. An exception in the middle may surface anywhere, so Ctrl-C raises none meanwhile.
    interrupts = signal.getsignal(signal.SIGINT)
    if interrupts is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_while_loading)
    from pagelab.cli import application

    application.main(interrupts)


def _open_missing_streams() -> None:
    """Opens /dev/null for closed standard streams: the next opened file would take the number of one and its output."""
    for descriptor in _STANDARD_STREAMS:
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 # the descriptor stays open
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


if __name__ == "__main__":
    main()
