"""Page faults in time: recordings of native programs, and the models that run on them."""
