"""Sizes and numbers as people read them."""


def size_text(size: float) -> str:
    """Bytes with a binary prefix: 1536 are 1.5 KiB."""
    for prefix in ("", "Ki", "Mi", "Gi"):
        if size < 1024:
            return f"{size:.4g} {prefix}B"
        size /= 1024
    return f"{size:.4g} TiB"


def counted(number: int, one: str, several: str) -> str:
    """A number with what it counts: 1 access, 1,000 accesses."""
    return f"{number:,} {one if number == 1 else several}"
