"""The results of a run: raw counts, and figures, tables and intervals computed from them."""
