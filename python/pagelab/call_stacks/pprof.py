"""Profiles of pprof: a compressed message `perftools.profiles.Profile`, as `go tool pprof` reads it.

Field numbers are those of profile.proto, the format's definition.
"""

import gzip
from collections.abc import Sequence

from pagelab.call_stacks.cost import METRICS
from pagelab.call_stacks.protobuf import Message
from pagelab.call_stacks.stacks import Frame, Location, Stack

_UNITS = {
    "walks": "count",
    "translation_cycles": "cycles",
    "faults": "count",
    "fault_cycles": "cycles",
    "cycles": "cycles",
}
"""Type and unit of each metric's samples"""
_SIZES = (("blocks", "count"), ("created", "bytes"))
"""Likewise, of memory that was created"""
_PAGE_BYTES = 4096


class _Profile:
    """Field numbers of `Profile`."""

    SAMPLE_TYPE, SAMPLE, MAPPING, LOCATION, FUNCTION, STRINGS = 1, 2, 3, 4, 5, 6
    COMMENT, DEFAULT_SAMPLE_TYPE = 13, 14


def render(stacks: Sequence[Stack], metric: str, comment: str) -> bytes:
    """The stacks with all metrics, of which `metric` is shown first.

    The same stacks give the same bytes.
    """
    assert set(_UNITS) == set(METRICS)
    writer = _Writer()
    of_memory = any(stack.kind for stack in stacks)
    for name, unit in (*_UNITS.items(), *(_SIZES if of_memory else ())):
        writer.add_sample_type(name, unit)
    for stack in stacks:
        sizes = (stack.count, stack.bytes) if of_memory else ()
        values = (*(stack.cost.get(unit) for unit in _UNITS), *sizes)
        if any(values):
            writer.add_sample(stack, values)
    writer.finish(comment, metric)
    return gzip.compress(bytes(writer.profile), mtime=0)


class _Writer:
    """A profile with its tables of texts, files, functions and locations; numbers in all but the first begin at 1."""

    def __init__(self) -> None:
        self.profile = Message()
        self._texts = {"": 0}
        self._functions: dict[tuple[str, str, str], int] = {}
        self._locations: dict[int, tuple[int, Location]] = {}
        """By the location's identity, as stacks share locations"""
        self._ends: dict[str, int] = {}
        """By file, the first offset beyond its locations"""

    def add_sample_type(self, name: str, unit: str) -> None:
        self.profile.message(_Profile.SAMPLE_TYPE, self._message(self._text(name), self._text(unit)))

    def add_sample(self, stack: Stack, values: Sequence[int]) -> None:
        sample = Message()
        # The leaf comes first.
        sample.integers(1, [self._location(call.location) for call in stack.innermost.outwards()])
        sample.integers(2, list(values))
        self.profile.message(_Profile.SAMPLE, sample)

    def finish(self, comment: str, default: str) -> None:
        """Writes the tables that samples refer to."""
        files = {file: (number, begin) for number, (file, begin) in enumerate(self._begins().items(), 1)}
        for file, (number, begin) in files.items():
            mapping = self._message(number, begin, begin + self._size(file), 0, self._text(file))
            # Functions, files, lines and inlined calls are known, or cannot be found.
            for field in (7, 8, 9, 10):
                mapping.integer(field, 1)
            self.profile.message(_Profile.MAPPING, mapping)
        for number, location in self._locations.values():
            mapping_number, begin = files.get(location.file, (0, 0))
            message = self._message(number, mapping_number, begin + location.offset)
            # The last line is that of the called function, into which the ones before were inlined.
            for frame in reversed(location.frames):
                message.message(4, self._message(self._function(frame), frame.line))
            self.profile.message(_Profile.LOCATION, message)
        for (name, _, source), number in self._functions.items():
            text = self._text(name)
            self.profile.message(_Profile.FUNCTION, self._message(number, text, text, self._text(source)))
        self.profile.integers(_Profile.COMMENT, [self._text(comment)])
        self.profile.integer(_Profile.DEFAULT_SAMPLE_TYPE, self._text(default))
        for text_ in self._texts:
            self.profile.raw(_Profile.STRINGS, text_.encode())

    def _message(self, *values: int) -> Message:
        """A message whose first fields are integers."""
        message = Message()
        for field, value in enumerate(values, 1):
            message.integer(field, value)
        return message

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def _function(self, frame: Frame) -> int:
        key = (frame.function, frame.file, frame.source)
        return self._functions.setdefault(key, len(self._functions) + 1)

    def _location(self, location: Location) -> int:
        known = self._locations.get(id(location))
        if known is None:
            known = self._locations[id(location)] = (len(self._locations) + 1, location)
            if location.file:
                self._ends[location.file] = max(self._ends.get(location.file, 0), location.offset + 1)
        return known[0]

    def _size(self, file: str) -> int:
        return -(-self._ends[file] // _PAGE_BYTES) * _PAGE_BYTES

    def _begins(self) -> dict[str, int]:
        """Where each file is mapped: addresses of a profile are of one space, and offsets in files are not."""
        begins, at = {}, _PAGE_BYTES
        for file in self._ends:
            begins[file] = at
            at += self._size(file)
        return begins
