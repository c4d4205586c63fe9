"""The command `pagelab`, also as `python -m pagelab`."""

import os

_INTERRUPTED = 130


def _end_while_loading(*_: object) -> None:
    os.write(2, b"pagelab: error: interrupted\n")
    os._exit(_INTERRUPTED)


try:
    import signal

    from pagelab.inherited import note_variables, open_missing_streams
except KeyboardInterrupt:
    _end_while_loading()


def main() -> None:
    """Entry point of the console script."""
    open_missing_streams()
    note_variables()
    # Modules take a while to load. An exception in the middle may surface anywhere, so Ctrl-C raises none meanwhile.
    interrupts = signal.getsignal(signal.SIGINT)
    if interrupts is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_while_loading)
    from pagelab.cli import application

    application.main(interrupts)


if __name__ == "__main__":
    main()
