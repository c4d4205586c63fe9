"""Machine presets of the processor that this runs on: what it says of itself, and what is measured of it."""
