"""Presets that `pagelab calibrate` left in the current folder: no command uses one unless it is named.

Otherwise results would depend on the folder, and a forgotten file would change them.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from pagelab.hardware import names


def tell_unused(machine: str | None, kernel: str | None, systems: Iterable[object] = ()) -> None:
    """Says on standard error which calibrated presets of the current folder were not used, and how to use them.

    Args:
        machine: The machine that the user named; None if nobody named one.
        kernel: The same of the kernel.
        systems: Systems as the user named them; one with `@` names a kernel.
    """
    kernel_is_named = kernel is not None or any("@" in str(system) for system in systems)
    for name, option, is_named in (
        (names.MACHINE, "-m", machine is not None),
        (names.KERNEL, "-k", kernel_is_named),
    ):
        file = Path(f"{name}.toml")
        if not is_named and file.is_file() and file.read_bytes().startswith(names.FIRST_LINE.encode()):
            print(f"pagelab: note: {file} in this folder is not used; use it with {option} {name}", file=sys.stderr)
