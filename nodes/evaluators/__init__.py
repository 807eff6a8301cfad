"""Who judges kernels, other than this machine."""
