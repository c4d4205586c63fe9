"""What is measured of the machine that this runs on: its page faults, its drives, the memory of its processes."""
