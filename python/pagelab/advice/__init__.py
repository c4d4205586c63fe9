"""Advice on a program's paging: what it costs, and what page sizes, population and hardware would change.

`subject.py` knows what the program is, `trials.py` replays it under each remedy, `gains.py` says what that gains,
`check.py` measures huge pages natively, and `words.py` says it.
"""

from pagelab.advice.check import Checked, Unchecked, check
from pagelab.advice.gains import Advice, advice_of
from pagelab.advice.subject import Subject
from pagelab.advice.trials import Choice, Trials, choose, ensure_known, replay
from pagelab.advice.words import Circumstances, parts_of
from pagelab.length import Length

__all__ = [
    "Advice",
    "Checked",
    "Choice",
    "Circumstances",
    "Length",
    "Subject",
    "Trials",
    "Unchecked",
    "advice_of",
    "check",
    "choose",
    "ensure_known",
    "parts_of",
    "replay",
]
