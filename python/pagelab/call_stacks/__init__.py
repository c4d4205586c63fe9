"""Call stacks of a profile: which callers and which allocations pay for paging, and in which formats to look at them.

`document` reads them from results, and `stacks` finds their functions and lines. The other modules make tables, files
or pictures from these.
"""
