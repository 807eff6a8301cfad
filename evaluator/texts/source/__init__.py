"""A Python text as syntax: kernels, values and calls are read, nothing is run."""
