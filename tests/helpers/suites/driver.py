"""What the tests of suites play with; as a script (`driver.py TASKS OUT LOG SECONDS DIE_AT`) one process of a suite.

It kills itself in the middle of evaluation DIE_AT (0: never), which also kills the verdict that it was about to write. FILE_KILOBYTES
in the environment limits every file, as a full disk does.
"""

import os
import resource
import sys
from pathlib import Path

from ablation_driver import Judge
from tritonsmith.graph.suites.run import optimize_suite, plan_suite
from tritonsmith.nodes.authors.scripted import ScriptedAuthor


def author_of(task):
    """Two seeds per task, of which tuning makes one better; on `slow` nothing is fast."""
    seed = f"{task.key} {'0.5' if task.key == 'slow' else '1.2'}"
    better = f"{task.key} {'0.6' if task.key == 'slow' else '1.8'}"
    return ScriptedAuthor(seeds=(seed, f"{task.key} bad"), variants={("tune_block", seed): (better,)})


def plan_of(tasks, checkpoints="none", parallel=2, **settings):
    return plan_suite([str(tasks)], size="small", parallel=parallel, settings={"checkpoints": checkpoints, **settings})


def main(tasks, out, log, seconds, die_at):
    if limit := int(os.environ.get("FILE_KILOBYTES", "0")):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit * 1024, resource.RLIM_INFINITY))
    judge = Judge(Path(log), float(seconds), die_at=int(die_at))
    results = optimize_suite(plan_of(tasks, checkpoints=os.environ.get("CHECKPOINTS", "sqlite")), out, evaluator=judge, author=author_of)
    sys.stdout.write(f"{results.headline}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
