"""The graph on a LangGraph server."""
