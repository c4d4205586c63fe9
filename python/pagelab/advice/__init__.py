"""Advice on a program's paging: what it costs, and what page sizes, population and hardware would change.

`subject.py` knows what the program is, `observed.py` what was observed of its machine, `trials.py` replays it under
each remedy, `gains.py` says what that gains, `check.py` measures huge pages natively, `verdict.py` compares that with
what was predicted, `words.py` writes the page and `document.py` the JSON.
"""

from pagelab.advice.allocators import Memory, Owner, owners_of
from pagelab.advice.check import Checked, Unchecked, check
from pagelab.advice.document import document_of
from pagelab.advice.gains import Advice, advice_of
from pagelab.advice.observed import Observed
from pagelab.advice.sampling import can_be_sampled, sampled
from pagelab.advice.subject import Subject
from pagelab.advice.trials import Choice, Trials, choose, ensure_known, replay
from pagelab.advice.words import Circumstances, parts_of
from pagelab.capture.length import Length

__all__ = [
    "Advice",
    "Checked",
    "Choice",
    "Circumstances",
    "Length",
    "Memory",
    "Observed",
    "Owner",
    "Subject",
    "Trials",
    "Unchecked",
    "advice_of",
    "can_be_sampled",
    "check",
    "choose",
    "document_of",
    "ensure_known",
    "owners_of",
    "parts_of",
    "replay",
    "sampled",
]
