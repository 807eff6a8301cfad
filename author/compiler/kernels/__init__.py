"""From a region to the text of its kernels."""
