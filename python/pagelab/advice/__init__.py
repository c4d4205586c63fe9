"""Advice on a program's paging: what it costs, and what page sizes, population and hardware would change.

`trials.py` replays the program under each remedy, `gains.py` says what that gains, `check.py` measures
huge pages natively, `words.py` writes the page.
"""

from pagelab.advice.check import Checked, check
from pagelab.advice.gains import Advice, advice_of
from pagelab.advice.trials import Choice, Trials, choose, replay

__all__ = ["Advice", "Checked", "Choice", "Trials", "advice_of", "check", "choose", "replay"]
