"""`sm70 roofline`: what a model of the strip kernels predicts for a card, and how far off it was."""
