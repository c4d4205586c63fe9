"""Pictures of miss-ratio curves."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pagelab import _engine
from pagelab.mrc.curves import STREAMS, Curve, MissRatioCurves
from pagelab.mrc.marks import Mark
from pagelab.quantities import size_text

FORMATS = ("svg", "png", "pdf")

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Okabe and Ito's colours, which all readers can distinguish"""
_INK, _FAINT = "#333333", "#999999"


def ensure_drawable(path: Path) -> None:
    """Fails before long work if no picture could be drawn there.

    Raises:
        UsageError: the format is unknown, or matplotlib is not installed.
    """
    if path.suffix[1:] not in FORMATS:
        raise _engine.UsageError(f"{path}: pictures are {', '.join(f'.{name}' for name in FORMATS)}")
    _matplotlib()


def draw(curves: MissRatioCurves, marks: Sequence[Mark] = (), format: str = "svg") -> bytes:
    """The curves over entries, or over bytes of caches, on logarithmic axes: a panel per stream, a line per page size.

    A sample's bounds are shaded. Dashed lines stand at the sizes of a machine's TLBs and caches.

    Args:
        curves: What to draw.
        marks: The machine's (`marks_of`).
        format: One of `FORMATS`. The same curves give the same bytes.

    Raises:
        UsageError: matplotlib is not installed.
    """
    mpl, plt = _matplotlib()
    panels = [
        (stream, stream_curves)
        for stream in STREAMS
        if (stream_curves := curves.of_stream(stream)) and not all(curve.is_empty for curve in stream_curves)
    ]
    style = {"svg.hashsalt": "pagelab", "font.size": 9, "axes.edgecolor": _FAINT, "text.color": _INK}
    style |= dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color"), _INK)
    with mpl.rc_context(style):
        width = 4.6 * max(1, len(panels))
        figure, row = plt.subplots(
            1, max(1, len(panels)), figsize=(width, 4.4), layout="constrained", squeeze=False, sharey=True
        )
        for axes, (stream, stream_curves) in zip(row[0], panels, strict=False):
            _panel(axes, stream_curves, [mark for mark in marks if mark.stream == stream], _scale(curves))
        unit = "instructions" if curves.instructions else "accesses"
        row[0][0].set_ylabel(f"misses per 1,000 {unit}")
        _legend(figure, row[0], panels)
        figure.suptitle(curves.source.name, fontsize=10, color=_INK)
        file = io.BytesIO()
        undated: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
        figure.savefig(file, format=format, dpi=150, metadata=undated.get(format))
        plt.close(figure)
    return file.getvalue()


def _matplotlib() -> tuple[Any, Any]:
    try:
        import matplotlib as mpl
    except ImportError:
        raise _engine.UsageError("pictures need matplotlib: pip install 'pagelab[pictures]'") from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    return mpl, plt


def _scale(curves: MissRatioCurves) -> float:
    return 1000 / (curves.instructions or curves.accesses or 1)


def _panel(axes: Any, curves: Sequence[Curve], marks: Sequence[Mark], scale: float) -> None:
    of_lines = curves[0].stream == "data-cache"
    end = 2 * max([curve.enough for curve in curves] + [mark.entries for mark in marks])
    for colour, curve in zip(_COLOURS * (len(curves) // len(_COLOURS) + 1), curves, strict=False):
        if not curve.is_empty:
            _line(axes, curve, colour, end, scale)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    unit = curves[0].granule_bytes if of_lines else 1
    axes.set_xlim(unit, end * unit)
    axes.set_title(STREAMS[curves[0].stream], fontsize=9, loc="left", pad=34)
    axes.set_xlabel("size" if of_lines else "entries")
    axes.xaxis.set_major_formatter(lambda at, _: size_text(at) if of_lines else f"{at:,.0f}")
    axes.yaxis.set_major_formatter(lambda at, _: f"{at:g}")
    axes.tick_params(axis="x", rotation=30, length=2)
    axes.tick_params(axis="y", which="both", length=2)
    axes.grid(axis="y", color="#e6e6e6", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for mark in marks:
        if 1 < mark.entries < end:
            axes.axvline(mark.entries * unit, color=_FAINT, lw=0.7, ls=(0, (4, 3)), zorder=0)
            place = axes.get_xaxis_transform()
            axes.text(mark.entries * unit, 1.01, mark.name, transform=place, fontsize=7, rotation=40, color="#777777")


def _legend(figure: Any, row: Sequence[Any], panels: Sequence[tuple[str, Sequence[Curve]]]) -> None:
    """The page sizes, once for all panels."""
    for axes, (stream, _) in zip(row, panels, strict=False):
        if stream != "data-cache":
            lines, sizes = axes.get_legend_handles_labels()
            labels = [f"pages of {size}" for size in sizes]
            figure.legend(lines, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
            return


def _line(axes: Any, curve: Curve, colour: str, end: int, scale: float) -> None:
    unit = curve.granule_bytes if curve.stream == "data-cache" else 1
    # Misses do not change beyond the last size.
    sizes = [entries * unit for entries in (*curve.sizes, max(end, curve.sizes[-1]))]

    def heights(misses: Sequence[int]) -> list[float]:
        return [count * scale for count in (*misses, misses[-1])]

    axes.plot(
        sizes, heights(curve.shown), color=colour, lw=1.4, label=size_text(curve.granule_bytes), drawstyle="steps-post"
    )
    if curve.sample_rate < 1:
        least, most = heights(curve.least_misses), heights(curve.most_misses)
        axes.fill_between(sizes, least, most, color=colour, alpha=0.15, lw=0, step="post")
