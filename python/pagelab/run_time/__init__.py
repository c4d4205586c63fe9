"""Run times of programs: measured under page-size layouts, modelled, and predicted."""
