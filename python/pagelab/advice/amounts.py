"""How advice writes shares, changes and times."""

from pagelab.advice.gains import Bar
from pagelab.report.figures import percent


def seconds_text(seconds: float) -> str:
    """Seconds or milliseconds, to three digits."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def range_text(bar: Bar) -> str:
    """A share from its low to its high end: `15 to 27 %`."""
    low, high = percent(bar.low), percent(bar.high)
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def change_text(bar: Bar) -> str:
    """What a saving changes, where less time is a minus: `−18 to −5.7 %`."""
    low, high = (_signed(-100 * end) for end in (bar.high, bar.low))
    return f"{low} %" if low == high else f"{low} to {high} %"


def _signed(value: float) -> str:
    text = f"{value:+.1f}" if abs(value) < 9.95 else f"{value:+.0f}"
    return "0" if not text.strip("+-0.") else text.replace("-", "−")
