"""`pagelab report`: results as one page of HTML that needs nothing beside it.

`page.py` puts it together; `executive.py` says in two sentences what was found, and `words.py` in more. It is all
drawn by `charts.py`; `memory.py` and `code.py` say where it is. `settings.py` says what was run, `glossary.py` what
words mean. `parts.py` is what advice before it is made of. The look is in `template.html`, `words.html`, `style.css`
and `script.js`.
"""

from pagelab.report.page import render, write
from pagelab.report.parts import Lead

__all__ = ["Lead", "render", "write"]
