"""Rates at which a core zeroes and copies whole pages, for `machine.bulk`.

Models: pages of 4 KiB in memory of a level's size, in an irregular order, so that each repetition finds and evicts what
    the one before left. A copy reads its source, then writes: what it takes beyond zeroing is the time of its reads.
    Zeroing 2 MiB at a time goes past the caches if it is faster than zeroing 4 KiB at a time by half.
Source: Linux clears pages with `rep stosb` where the processor has it (`clear_page_erms`); commit cb431accb36e reports
    rates that depend on the size of an operation.
Deviations: that a fast operation leaves no lines in the caches is an inference from its rate. Non-temporal stores are
    measured for comparison: Linux clears pages without them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pagelab.hardware.measured import Figure, Processor, near

_SMALL, _LARGE = 4096, 2 << 20
_PAST_CACHES = 1.5
"""How many times faster than 4 KiB at a time an operation is that goes past the caches"""


@dataclass(frozen=True)
class Rate:
    """A rate of `machine.bulk`."""

    key: str
    """In the machine preset."""
    bytes_per_cycle: float
    how: str
    """What was measured, with its repetitions."""
    noisy: bool
    """Whether the repetitions spread widely."""


def per_page(processor: Processor) -> Iterator[tuple[str, Figure]]:
    """What was measured of cold memory, in cycles per page."""
    for kind, what, page in (
        ("zero4K", "zeroing 4 KiB of memory (rep stosb)", _SMALL),
        ("stream4K", "zeroing 4 KiB of memory (non-temporal stores)", _SMALL),
        ("copy4K", "copying 4 KiB of memory (rep movsb)", _SMALL),
        ("zero2M", "zeroing 2 MiB of memory (rep stosb)", _LARGE),
        ("stream2M", "zeroing 2 MiB of memory (non-temporal stores)", _LARGE),
        ("copy2M", "copying 2 MiB of memory (rep movsb)", _LARGE),
    ):
        if figures := processor.bulk_cycles[kind]:
            yield what, _times(figures[max(figures)], page)


def rates(processor: Processor, sizes: Mapping[str, float]) -> Iterator[Rate]:
    """The rates of caches of these sizes, by `l1`, `l2` and `l3`, and of memory."""
    zero, copy = processor.bulk_cycles["zero4K"], processor.bulk_cycles["copy4K"]
    if not zero or not copy:
        return
    for level, wanted in {**sizes, "memory": float(max(zero))}.items():
        written, copied = near(zero, wanted), near(copy, wanted)
        where = f"in about {round(wanted) >> 10} KiB"
        page = _times(written, _SMALL)
        yield _rate(f"store_bytes_per_cycle.{level}", written, f"zeroing 4 KiB {where} takes {page} cycles")
        read = Figure(
            copied.lower_quartile - written.lower_quartile,
            copied.median - written.median,
            copied.upper_quartile - written.upper_quartile,
            copied.repeats,
        )
        how = f"copying 4 KiB {where} takes {_times(copied, _SMALL)} cycles, less {page} cycles for zeroing them"
        yield _rate(f"load_bytes_per_cycle.{level}", read, how, copied.noisy or written.noisy)


def past_caches(processor: Processor) -> Rate | None:
    """The rate of zeroing 2 MiB at a time, if it seems to go past the caches."""
    small, large = processor.bulk_cycles["zero4K"], processor.bulk_cycles["zero2M"]
    if not small or not large:
        return None
    slow, fast = small[max(small)], large[max(large)]
    if fast.value * _PAST_CACHES > slow.value:
        return None
    pages = f"{_times(slow, _SMALL).value:.4g} cycles per 4 KiB if these are zeroed one by one"
    how = f"zeroing 2 MiB takes {_times(fast, _LARGE)} cycles, {_times(fast, _SMALL).value:.4g} per 4 KiB; {pages}"
    return _rate("store_bytes_per_cycle.non_temporal", fast, how)


def _rate(key: str, cycles_per_byte: Figure, how: str, noisy: bool | None = None) -> Rate:
    value = cycles_per_byte.value
    rate = round(1 / value, 2) if value > 0 else float("inf")
    return Rate(f"bulk.{key}", rate, how, cycles_per_byte.noisy if noisy is None else noisy)


def _times(figure: Figure, bytes: int) -> Figure:
    return Figure(bytes * figure.lower_quartile, bytes * figure.median, bytes * figure.upper_quartile, figure.repeats)
