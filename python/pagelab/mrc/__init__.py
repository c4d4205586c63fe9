"""Miss-ratio curves: computing them, drawing them with the sizes of a machine, and choosing the size of samples."""
