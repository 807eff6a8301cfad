"""Random modules of two to twelve operators: the built-in author's kernels for them against PyTorch's results."""
