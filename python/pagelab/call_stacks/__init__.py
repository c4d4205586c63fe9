"""Call stacks of a profile: which callers and which allocations pay for paging, and in which formats to look at them.

`document` reads them from results, `stacks` gives them functions and lines. All else makes tables, files or pictures of
these.
"""
