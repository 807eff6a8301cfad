"""From the kernels of regions to the text of a module."""
