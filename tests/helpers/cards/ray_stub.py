"""A supervisor without an evaluator, and a driver: `ray_stub.py ADDRESS LOG STORE COUNT` asks COUNT questions and prints the scores.

The stub's `target` is the file to which it writes every question that it begins.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import ray

from tritonsmith.evaluator.caller.sharing.answers import AnswerStore, KeptEvaluator
from tritonsmith.evaluator.caller.sharing.ray_cards import open_ray
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.reads.record import TaskReads
from tritonsmith.evaluator.schema import Task, TaskFacts
from tritonsmith.nodes.evaluators.scripted import scripted_verdict

TASK = Task(name="mine", path="mine.py", source="x")


class StubSupervisor:
    def __init__(self, target, sandbox, baselines):
        self.log = Path(target)

    def hello(self):
        places = {"pid": os.getpid(), "node": "here", "parallel": 1, "admits": 1}
        return json.dumps({"hardware": named_card("h200").model_dump(mode="json"), **places})

    def describe(self, task):
        return json.dumps({"facts": TaskFacts(reads=TaskReads()).model_dump(mode="json")})

    def evaluate(self, task, kernel, profile):
        with self.log.open("a") as file:
            file.write(f"{kernel}\n")
        time.sleep(600 if kernel == "hang" else 0.15)
        return json.dumps({"verdict": scripted_verdict(1.0 + float(kernel)).model_dump(mode="json"), "raw": ""})


def open_stubs(address, log, supervisor=StubSupervisor, count=2, needs=()):
    for module in (sys.modules[StubSupervisor.__module__], *needs):
        ray.cloudpickle.register_pickle_by_value(module)  # workers cannot import these files
    return open_ray(address, str(log), None, "auto", "beside", count, supervisor=supervisor)


async def ask_all(evaluator, count):
    verdicts = await asyncio.gather(*(evaluator.evaluate(TASK, KernelText.of(str(number))) for number in range(count)))
    return [verdict.score for verdict in verdicts]


def main(address, log, store, count):
    async def play():
        evaluator = KeptEvaluator(open_stubs(address, log), AnswerStore(Path(store)), {})
        scores = await ask_all(evaluator, int(count))
        await evaluator.aclose()
        return scores

    sys.stdout.write(json.dumps(asyncio.run(play())))


if __name__ == "__main__":
    main(*sys.argv[1:])
