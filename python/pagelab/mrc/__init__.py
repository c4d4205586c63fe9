"""Miss-ratio curves: computed, drawn beside the sizes of a machine, and how large their samples must be."""
