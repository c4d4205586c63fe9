"""C sources compiled on first use: a library for page-size layouts, and benchmarks of the processor."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pagelab._engine import UsageError
from pagelab.output import cache_folder

_SOURCES = Path(__file__).parent
_LIBRARY = ("-O2", "-fPIC", "-shared")
_PROGRAM = ("-O2", "-pthread")


def layout_library() -> Path:
    """The library that gives a program's memory the page sizes of a layout (`layout.c`).

    Raises:
        UsageError: there is no C compiler, or it fails.
    """
    return _compiled("layout.c", "layout.so", _LIBRARY)


def processor_benchmarks() -> Path:
    """The program that measures the processor (`processor.c`).

    Raises:
        UsageError: there is no C compiler, or it fails.
    """
    return _compiled("processor.c", "processor", _PROGRAM)


def _compiled(source: str, name: str, flags: Sequence[str]) -> Path:
    """What is kept is known by source and flags, so a new version of pagelab compiles anew."""
    text = (_SOURCES / source).read_bytes()
    known = hashlib.sha256(text + " ".join(flags).encode()).hexdigest()[:16]
    target = cache_folder() / "native" / known / name
    if target.exists():
        return target
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise UsageError(f"{source} cannot be compiled: there is no C compiler; on Debian it is in the package gcc")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as folder:
        made = Path(folder) / name
        command = [compiler, *flags, "-o", str(made), str(_SOURCES / source)]
        # Without PATH the compiler is found, but does not find its linker.
        done = subprocess.run(
            command,
            env={"PATH": os.defpath} | os.environ,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or [f"{compiler} does not say why"]
            raise UsageError(f"{source} cannot be compiled: {lines[0].strip()}")
        # Several processes may do so at once; each replaces the file by an equal one.
        made.replace(target)
    return target
