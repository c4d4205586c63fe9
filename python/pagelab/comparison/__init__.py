"""Two versions of a program compared: `pagelab.compare` and `pagelab compare`.

`sides.py` makes the results, `differences.py` says whether they can be compared, `mappings.py` and `functions.py` find
counterparts, `changes.py` holds the figures, `intervals.py` and `limits.py` judge, `words.py` and
`document.py` write. `compare.py` is the function for Python.

Nothing is imported here: a run names functions without the rest.
"""
