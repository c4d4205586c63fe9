"""What a run answers: raw counts, and the figures, tables and intervals that are made of them."""
