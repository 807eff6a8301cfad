"""Whether a baseline's own result keeps the rule that candidates are judged by. Imports torch."""

from __future__ import annotations

from tritonsmith.evaluator.channel.doorbell import mode_number
from tritonsmith.evaluator.channel.slots import fill_slots
from tritonsmith.evaluator.oracle.checks.correctness import accepted, reached_class
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.shared_inputs import InputSet
from tritonsmith.evaluator.oracle.checks.trials import describe_error, run_and_deliver
from tritonsmith.evaluator.oracle.timing.baselines import BUILD_SECONDS, BaselineProcess

_EAGER = mode_number("eager", tf32=False)


class ResultCheck:
    """Compares results of baselines with a float64 oracle, which is computed once for all of them, when it is first needed.

    Args:
        session: the task on the card, with the weights that the baselines have.
        baselines: their process.
    """

    def __init__(self, session: LoadedTask, baselines: BaselineProcess) -> None:
        self._session = session
        self._baselines = baselines
        self._asked: InputSet | None = None
        self._eager: str | None = None
        """What is wrong with eager execution, as far as that was asked for."""

    def find_wrong(self, mode: int) -> str:
        """What is wrong with the result of a setting, by its number; empty where it is right. Raises RunnerFault where it does not run.

        Where eager execution is no better, PyTorch itself computes something else than the reference's Python says, as its operator for a
        transformer layer does. Then no baseline is to blame.
        """
        wrong = self._compare(mode)
        if wrong and self._eager is None:
            self._eager = self._compare(_EAGER)
        return "" if self._eager else wrong

    def _compare(self, mode: int) -> str:
        """What the rule says of a result."""
        session, runner = self._session, self._baselines.runner
        asked = self._asked = self._asked or InputSet(session, "own")
        fill_slots(self._baselines.inputs, asked.tensors)
        runner.poison()
        session.sync()
        run_and_deliver(runner, mode, BUILD_SECONDS)
        trial = asked.expect(()).trial(runner.results)
        precision = session.task.precision
        return "" if accepted(reached_class([trial]), precision) else describe_error([trial], precision, session.call.name_result)
