"""Machine presets of this machine's processor: its own description, and measurements."""
