"""Page faults in time: recorded of native programs, and the models that run on them."""
