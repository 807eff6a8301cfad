"""What the tests of experiments play with: an author and an evaluator that answer from tables.

As a script (`ablation_driver.py SUITE OUT LOG SECONDS DIE_AT READY PARALLEL`) it is one process of an experiment: it kills itself in
the middle of evaluation DIE_AT (0: never), and begins when as many processes are ready as READY says. It prints the cells that it ran.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from tritonsmith.benchmarks.ablation.plan import make_plan
from tritonsmith.benchmarks.ablation.runner import ablate
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.schema import Comparison
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

TASK = """
import torch
from torch import nn

N = 1024
SMALL = {"N": 16}


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
"""
PRESENT = named_card("h200").model_copy(update={"present": True})


class Judge(ScriptedEvaluator):
    """Scores are part of the text (`task 1.5 ...`); every evaluation is a line of a file, so that several processes can be counted."""

    def __init__(self, log, seconds=0.0, broken=(), die_at=0):
        super().__init__({}, hardware=PRESENT)
        self.log, self.seconds, self.broken, self.die_at = log, seconds, broken, die_at
        self.busy = self.most = self.asked = 0

    async def evaluate(self, task, kernel, profile="quick"):
        self.busy += 1
        self.asked += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(self.seconds)
        if self.asked == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        with self.log.open("a") as file:
            file.write(f"{task.name} {kernel.text} {profile}\n")
        self.busy -= 1
        if task.name in self.broken:
            raise InfrastructureError("the card is gone")
        score = kernel.text.split()[1]
        if score == "bad":
            return scripted_verdict(None, message="it fails")
        comparison = Comparison.FASTER if float(score) > 1.05 else Comparison.AMBIGUOUS if float(score) > 0.95 else Comparison.SLOWER
        return scripted_verdict(float(score), comparison=comparison)


def author_of(cell):
    """Two seeds per repeat, of which tuning makes one better; on `slow` nothing is fast."""
    number = cell.repeat
    seeds = tuple(f"{cell.task.key} {score} r{number}" for score in (("0.3", "bad") if cell.task.key == "slow" else ("1.2", "bad")))
    better = f"{cell.task.key} {'0.6' if cell.task.key == 'slow' else '1.8'} r{number}"
    return ScriptedAuthor(seeds=seeds, variants={("tune_block", seeds[0]): (better,)})


def plan_of(suite, policies=("default", "no-tune"), repeats=2, checkpoints="none", **options):
    """Without checkpoints, which take most of a scripted run's time, where nothing is killed."""
    settings = {"checkpoints": checkpoints, **options.pop("settings", {})}
    return make_plan(str(suite), policies, repeats=repeats, size="small", settings=settings, **options)


def main(suite, out, log, seconds, die_at, ready, parallel):
    root = Path(log).parent
    (root / f"ready-{os.getpid()}").touch()
    while len(list(root.glob("ready-*"))) < int(ready):
        time.sleep(0.01)
    judge = Judge(Path(log), float(seconds), die_at=int(die_at))

    def tell(row, *_):
        sys.stdout.write(f"{row.folder}\n")

    ablate(plan_of(Path(suite), checkpoints="sqlite"), out, evaluator=judge, author=author_of, parallel=int(parallel), on_row=tell)


if __name__ == "__main__":
    main(*sys.argv[1:])
