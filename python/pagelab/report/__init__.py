"""`pagelab report`: results as one page of HTML that needs nothing beside it.

`page.py` puts it together; `words.py` says what was found, `charts.py` draws it, `memory.py` and `code.py` say where it
is, `settings.py` what was run. `parts.py` is what advice before it is made of. The look is in `template.html`,
`style.css` and `script.js`.
"""

from pagelab.report.page import render, write
from pagelab.report.parts import Lead

__all__ = ["Lead", "render", "write"]
