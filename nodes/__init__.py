"""Floor 4: one file per stage of the graph; each node takes state and runtime context and returns a small update."""
