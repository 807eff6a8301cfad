"""The kernels of an attention."""
