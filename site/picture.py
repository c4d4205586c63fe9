"""Draws the picture of the front page again, after results have changed.

python site/picture.py
"""

import json
from pathlib import Path

import vl_convert

import pagelab
from pagelab.report import charts

_FILE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "where-cycles-go.svg"
_SOURCE = "gups:size=1GiB,updates=1M"
_SYSTEMS = ("radix", "radix-2m", "hashed-compact", "nested-radix", "nested-radix-2m")
_WIDTH = 560


def draw() -> str:
    """Busy cycles by class, a bar per system, as SVG."""
    results = pagelab.run(_SOURCE, _SYSTEMS)
    # The page's colour of the ground is a variable of its style, which a file by itself does not have.
    spec = json.loads(json.dumps(charts.cycles(results.systems)).replace("var(--ground)", "white"))
    spec |= {"width": _WIDTH, "background": "white"}
    svg: str = vl_convert.vegalite_to_svg(spec)
    return svg


if __name__ == "__main__":
    _FILE.parent.mkdir(exist_ok=True)
    _FILE.write_text(draw() + "\n", encoding="utf-8")
