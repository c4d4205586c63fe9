"""`pagelab report`: results as one page of HTML, complete in a single file.

`page.py` combines the parts. `executive.py` says in two sentences what was found, and `words.py` in more. `charts.py`
draws it; `memory.py` and `code.py` list the places. `settings.py` says what was run, and `glossary.py` what words mean.
`parts.py` has the parts of advice, which comes first. The look is in `template.html`, `head.html`, `figure.html`,
`words.html`, `style.css` and `script.js`; `templates.py` reads them, also for pages of other packages.
"""

from pagelab.report.page import render, write
from pagelab.report.parts import Lead

__all__ = ["Lead", "render", "write"]
