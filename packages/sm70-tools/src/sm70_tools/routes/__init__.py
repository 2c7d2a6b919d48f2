"""`sm70 routes`: which kernel every configuration takes, as a file that review can compare."""
