"""The scripts that draw a report's charts: Vega, Vega-Lite and vega-embed in one, which defines `vegaEmbed`.

To put them together takes two seconds, and the result depends on versions alone, so it is kept in the user's cache
folder.
"""

from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

from pagelab import _engine
from pagelab.output import cache_folder, write_atomically

_VEGA_LITE = "6.4"
_END = "\n// end of the bundle\n"
"""A kept file without this end is not used"""


@cache
def bundle() -> str:
    """The script, to stand in an HTML page."""
    with suppress(OSError, RuntimeError, UnicodeDecodeError):
        script = _kept().read_text(encoding="utf-8")
        if script.endswith(_END):
            return script
    script = _put_together()
    # Without a cache folder, each page takes the time.
    with suppress(OSError, RuntimeError):
        write_atomically(_kept(), script)
    return script


def _kept() -> Path:
    """The file. Raises RuntimeError if the user has no home."""
    return cache_folder() / f"charts-{_engine.__version__}-{version('vl-convert-python')}-{_VEGA_LITE}.js"


def _put_together() -> str:
    import vl_convert

    # The stub of the library asks for a snippet, which the library does not.
    script: str = vl_convert.javascript_bundle(vl_version=_VEGA_LITE)  # type: ignore[call-arg]
    return script.replace("</script", "<\\/script") + _END
