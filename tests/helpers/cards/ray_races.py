"""A supervisor with a card of `search_card`, which also races."""

import json
import sys

import search_card
from cards.ray_stub import StubSupervisor, open_stubs
from tritonsmith.evaluator.caller.sharing.supervisor import RaceQuestion
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.records.limits import Counters
from tritonsmith.evaluator.schema import TaskFacts


class RacingSupervisor(StubSupervisor):
    def __init__(self, target, sandbox, baselines):
        StubSupervisor.__init__(self, target, sandbox, baselines)
        self.card = search_card.Card(2)

    def hello(self):
        told = json.loads(StubSupervisor.hello(self))
        return json.dumps(told | {"hardware": told["hardware"] | {"present": True}})

    async def describe(self, task):
        return json.dumps({"facts": TaskFacts().model_dump(mode="json")})

    def evaluate(self, task, kernel, profile):
        return json.dumps({"verdict": search_card.Verdicts(self.card.speed)[kernel].model_dump(mode="json"), "raw": ""})

    async def count(self, task, kernel):
        return json.dumps({"counters": Counters(source="ncu", reason=f"of {len(kernel)} characters").model_dump(mode="json")})

    async def read_code(self, task, kernel):
        return json.dumps({"code": f"digest of {len(kernel)} characters"})

    def race(self, task, question):
        asked = RaceQuestion.model_validate_json(question)
        report = self.card(KernelText.of(asked.incumbent), [KernelText.of(text) for text in asked.entrants], asked.keep)
        return json.dumps({"race": report.model_dump(mode="json")})


def open_racing(log):
    """The evaluator of a cluster with one such supervisor."""
    return open_stubs("", log, RacingSupervisor, 1, (sys.modules[RacingSupervisor.__module__], search_card))
