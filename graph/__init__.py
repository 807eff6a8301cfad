"""The graph. This file imports nothing, so that nodes can use graph.state while graph.builder uses the nodes."""
