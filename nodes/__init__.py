"""One file per stage of the graph: each node takes state and runtime, and returns a small update."""
