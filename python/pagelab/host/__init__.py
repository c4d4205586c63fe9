"""Measurements of this machine: its page faults, its drives, the memory of its processes."""
