"""From the traced forward to values: the walk over its nodes, and what stays a PyTorch call."""
