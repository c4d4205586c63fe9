"""The command `pagelab`, also as `python -m pagelab`."""

import sys

_INTERRUPTED = 130


def main() -> None:
    """Entry point of the console script."""
    try:
        # What the commands import takes a while, and Ctrl-C is no error of the program then, either.
        from pagelab import cli
    except KeyboardInterrupt:
        print("pagelab: error: interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    cli.main()


if __name__ == "__main__":
    main()
