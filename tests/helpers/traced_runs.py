"""Scripted runs whose traces go to a capture server, with keys and texts planted that must not leave."""

import json
import os
from contextlib import contextmanager

import langsmith.utils
import pytest

import capture_server as capture
import chat_server as chat
from tritonsmith.evaluator.schema import Label, TaskFacts
from tritonsmith.graph.run import optimize
from tritonsmith.graph.tracing import link, target
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

SMITH_KEY, MODEL_KEY, OWN_KEY = "lsv2_pt_plantedplanted01", "sk-local-test-key", "planted own key 77"
LONG = "    y = tl.load(x)  # and so on, line by line, until nobody reads any further than this\n" * 8
SEED = f"import torch\n\n\ndef good(x):\n{LONG}    return x  # PLANTED-IN-A-SEED\n"
WINNER = f"import torch\n\n\ndef best(x):\n{LONG}    return x  # PLANTED-IN-THE-WINNER\n"


def task_in(folder):
    path = folder / "1_relu.py"
    path.write_text(f"{chat.TASK}\n# PLANTED-IN-THE-TASK\n" + "".join(f"CONSTANT_{number} = {number}\n" for number in range(40)))
    return path


@contextmanager
def own_settings():
    """Sets the variables of a server; LangSmith's library remembers those it has read, so it is made to forget them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("LANGSMITH_", "LANGCHAIN_", "OTEL_"))]:
            patch.delenv(name)
        patch.setattr(link, "troubled", set())  # ports are used again
        patch.setattr(target, "troubled", link.troubled)

        def point_at(server, **more):
            settings = {"TRACING": "true", "API_KEY": SMITH_KEY, "ENDPOINT": server.url, "PROJECT": "kernels"}
            for name, value in ({f"LANGSMITH_{name}": value for name, value in settings.items()} | more).items():
                patch.setenv(name, value)

        langsmith.utils.get_env_var.cache_clear()
        yield point_at
    langsmith.utils.get_env_var.cache_clear()


def players():
    author = ScriptedAuthor(
        seeds=("bad", SEED), repairs={"bad": "mended"}, variants={("tune_block", SEED): (WINNER,), ("tune_block", "mended"): (WINNER,)}
    )
    verdicts = {
        "bad": scripted_verdict(None, message=f"it fails at /home/someone/kernels/bad.py with {MODEL_KEY} and {OWN_KEY}"),
        "mended": scripted_verdict(0.5), SEED: scripted_verdict(0.6), WINNER: scripted_verdict(1.5, label=Label.KERNEL),
    }  # fmt: skip
    return {"author": author, "evaluator": ScriptedEvaluator(verdicts, facts=TaskFacts(returns="a tensor"))}


def traced_run(folder, point_at, **server):
    """One scripted run with a capture server of this kind: the server, the summary and the manifest."""
    with capture.CaptureServer(**server) as got:
        point_at(got, OPENAI_API_KEY=MODEL_KEY, MY_OWN=OWN_KEY)
        summary = optimize(task_in(folder), out=str(folder / "out"), size="small", key_env="MY_OWN", **players())
    return got, summary, json.loads((folder / "out" / "run.json").read_text())
