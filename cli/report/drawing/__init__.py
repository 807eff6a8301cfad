"""The drawing of the graph with the way that a run took."""
