"""The glossary as a page of the documentation, from the words that reports explain.

python site/glossary.py --write     write docs/glossary.md
"""

import sys
from pathlib import Path

from pagelab.report import glossary

PAGE = Path(__file__).resolve().parents[1] / "docs" / "glossary.md"

if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    PAGE.write_text(glossary.markdown(), encoding="utf-8")
