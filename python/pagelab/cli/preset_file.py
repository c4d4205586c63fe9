"""Files that presets are written to."""

from pathlib import Path

from pagelab import UsageError, catalogue
from pagelab.hardware import names
from pagelab.output import ensure_writable


def check(output: Path, kind: str = "kernels") -> None:
    """Refuses a file that a preset must not be written to."""
    ensure_writable(output)
    if output.exists() and not output.is_file():
        return
    if output.suffix != ".toml":
        raise UsageError(f"{output}: a preset file needs the ending .toml: give {output}.toml")
    if output.stem in {preset["name"] for preset in catalogue.available(kind)}:
        raise UsageError(f"{output}: a preset is called {output.stem} and would be used instead: choose another name")
    if output.is_file() and not output.read_bytes().startswith(names.FIRST_LINE.encode()):
        raise UsageError(f"{output}: exists and was not written by `pagelab calibrate`; name another output")
