"""The compiled graph for the LangGraph server (`langgraph.json`): settings come as plain values, a task as its path.

No classes here, because a server may load this file a second time under another name.
"""

from tritonsmith.graph.builder import build_graph
from tritonsmith.graph.server.serve import serve
from tritonsmith.graph.server.settings import RunForm, TaskInput

graph = build_graph(RunForm, serve, TaskInput).compile(name="tritonsmith")
