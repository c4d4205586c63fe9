"""What the memory of a running program does, at native speed, and whether a recording of it is worth the work."""
