"""Where pagelab keeps what it can make or fetch again."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """The user's cache folder for pagelab, which need not exist (XDG base directory specification)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "pagelab"
