"""From values to regions: which values are kept in memory, and which kernel computes each of them."""
