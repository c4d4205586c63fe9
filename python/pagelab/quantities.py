"""Sizes as people read them."""


def size_text(size: float) -> str:
    """Bytes with a binary prefix: 1536 are 1.5 KiB."""
    for prefix in ("", "Ki", "Mi", "Gi"):
        if size < 1024:
            return f"{size:.4g} {prefix}B"
        size /= 1024
    return f"{size:.4g} TiB"
