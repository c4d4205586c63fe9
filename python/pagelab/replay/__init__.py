"""Replaying traces, workloads and running programs under systems: `pagelab.run` and `pagelab.run_live`."""
