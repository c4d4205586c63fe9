"""Published results, measured again: each paper's figures beside ours, with the reason for each difference.

A reproduction is one module with a `REPRODUCTION` and one entry here.
"""

from pagelab.reproduce import hash_dont_cache, ptemagnet
from pagelab.reproduce.study import Reproduction

REPRODUCTIONS: dict[str, Reproduction] = {r.name: r for r in (hash_dont_cache.REPRODUCTION, ptemagnet.REPRODUCTION)}

__all__ = ["REPRODUCTIONS", "Reproduction"]
