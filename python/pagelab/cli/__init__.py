"""The command line: a module per command, and `application.py`, which combines them."""
