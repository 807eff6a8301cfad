"""Runs for test_tracing_delays.py, in a process of their own: how long each kind of broken server holds a run up.

Each case is one scripted run with a trace and the same run without; all runs of a kind go on at the same time. One line of JSON
says what each case added, and when the work was over on the machine's monotonic clock: what follows is the interpreter's exit.
"""

import asyncio
import json
import os
import sys
import time

from tritonsmith.evaluator.schema import Task
from tritonsmith.graph.builder import build_graph
from tritonsmith.graph.context import Context
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.tracing.tracer import RunTrace, tracing
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedDetector, ScriptedEvaluator, scripted_verdict


class Slow(ScriptedEvaluator):
    """Takes a moment for each verdict, so that servers can break in the middle of a run."""

    async def evaluate(self, task, source, profile="quick"):
        await asyncio.sleep(0.3)
        return await super().evaluate(task, source, profile)


async def run(trace: RunTrace) -> tuple[float, str]:
    """Seconds of one run with everything around it, and its winner."""
    author = ScriptedAuthor(seeds=("a", "b"), repairs={"b": "c"}, variants={("tune_block", "a"): ("d",)})
    verdicts = {"a": scripted_verdict(0.9), "b": scripted_verdict(None), "c": scripted_verdict(0.5), "d": scripted_verdict(1.5)}
    policy = load_policy("default")
    began = time.monotonic()
    async with trace:
        with Context(author, Slow(verdicts), policy, seeds=2, detector=ScriptedDetector({})) as context:
            task = Task(name="task", path="task.py", source="")
            answer = await build_graph().compile().ainvoke({"task": task}, trace.config, context=context)
    return time.monotonic() - began, answer["winner"]


def trace_to(address: str) -> RunTrace:
    """A trace for LangSmith, or where the address begins with `otlp:` for an OTLP server."""
    for name in [name for name in os.environ if name.startswith(("LANGSMITH_", "LANGCHAIN_", "OTEL_"))]:
        del os.environ[name]
    if address.startswith("otlp:"):
        os.environ |= {"LANGSMITH_OTEL_ENABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": address.removeprefix("otlp:")}
    elif address:
        os.environ |= {"LANGSMITH_TRACING": "true", "LANGSMITH_ENDPOINT": address, "LANGSMITH_API_KEY": "a key of no use"}
    return tracing(task="task", policy="default")


async def main(addresses: dict[str, str]) -> None:
    """Tell what each case adds."""
    await run(trace_to(""))  # what is done once is done before
    plain = await asyncio.gather(*(run(trace_to("")) for _ in addresses))
    traces = [trace_to(address) for address in addresses.values()]
    traced = await asyncio.gather(*map(run, traces))
    longest = max(seconds for seconds, _ in plain)
    added = {name: seconds - longest for name, (seconds, _) in zip(addresses, traced, strict=True)}
    winners = sorted({winner for _, winner in (*plain, *traced)})
    print(json.dumps({"added": added, "winners": winners, "over": time.monotonic()}), flush=True)  # noqa: T201 - for the parent


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
