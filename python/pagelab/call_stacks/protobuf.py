"""Encoding of protocol buffers, as far as a message of integers, texts and messages needs it."""

_VARINT, _LENGTH = 0, 2
_MASK = (1 << 64) - 1


class Message:
    """A message that is being written, field by field."""

    def __init__(self) -> None:
        self._parts = bytearray()

    def integer(self, field: int, value: int) -> None:
        """A field of a type int64, uint64 or bool; 0 is what a missing field means."""
        if value:
            self._parts += _varint(field << 3 | _VARINT) + _varint(value)

    def integers(self, field: int, values: "list[int] | tuple[int, ...]") -> None:
        """A repeated field of such a type, packed."""
        if values:
            self.raw(field, b"".join(_varint(value) for value in values))

    def raw(self, field: int, value: bytes) -> None:
        """A text or the like, which may be empty."""
        self._parts += _varint(field << 3 | _LENGTH) + _varint(len(value)) + value

    def message(self, field: int, value: "Message") -> None:
        """Another message."""
        self.raw(field, bytes(value))

    def __bytes__(self) -> bytes:
        return bytes(self._parts)


def _varint(value: int) -> bytes:
    """Seven bits per byte, the lowest first; negative numbers in two's complement of 64 bits."""
    rest, parts = value & _MASK, bytearray()
    while rest > 0x7F:
        parts.append(rest & 0x7F | 0x80)
        rest >>= 7
    parts.append(rest)
    return bytes(parts)
