"""The built-in author's operators against PyTorch's own, on the samples that PyTorch tests itself with."""
