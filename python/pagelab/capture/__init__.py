"""Recording programs, and what is known of a recorded one: its traces, how long it is, how it ended, its symbols."""
