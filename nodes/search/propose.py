"""Who proposes configurations: all of them where the space is small, else Optuna's tree-structured Parzen estimator."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from tritonsmith.evaluator.kernel_text import text_sha
from tritonsmith.evaluator.texts.spaces.linked import VARIANTS, LinkedWarps
from tritonsmith.evaluator.texts.spaces.space import Parameter, Value, Values, count_configurations, list_configurations

_MOST_REPEATS = 200
"""Proposals in a row that were made before, after which Optuna has nothing new."""
_MOST_LISTED = 10_000
"""Configurations of a space that are counted one by one: not all that are linked differ."""
_FOLLOWS = "which of the linked variants"
"""Optuna's name for that choice; no parameter is named so."""
_WORST = 0.0
"""The ratio that a configuration counts as which did not fit, failed, or was never timed."""


class Proposer:
    """Proposes each configuration once.

    Args:
        parameters: what is varied.
        budget: configurations that may be tried. A space that is no larger is tried whole, those that change least first.
        starts: configurations to propose first.
        present: whether the present values are proposed too: of an autotuned kernel they are another text.
        seed: text from which Optuna's random numbers follow, so that a repeated search proposes the same.
        linked: options of another stage that are proposed together with these parameters.
    """

    def __init__(
        self, parameters: Sequence[Parameter], budget: int, starts: Sequence[Values] = (), seed: str = "", *, present: bool = False,
        linked: LinkedWarps | None = None,
    ) -> None:  # fmt: skip
        self._parameters = tuple(parameters)
        self._linked = linked = linked or LinkedWarps()
        self._current = {parameter.name: parameter.current for parameter in parameters}
        self._seen = set() if present else {self._key(self._current | linked.list_variants(self._current)[0])}
        firsts = [found | linked.given_by(start) for start in starts if (found := self._complete(start)) is not None]
        self.size = count_configurations(self._parameters)
        every: list[Values] = []
        if self.size <= _MOST_LISTED:
            every = self._list_linked(sorted(list_configurations(self._parameters), key=self._distance), firsts)
            self.size = len(every)
        elif linked.followers:
            self.size *= VARIANTS
        self.whole = self.size - len(self._seen) <= budget
        """Whether every configuration is tried."""
        nearest = every if self.whole else self._list_linked(self._list_neighbours())[: max(1, budget // 4)]
        self._listed = nearest if self.whole else [*firsts, *nearest]
        self._seed = int(text_sha(seed), 16) % (1 << 31)
        self._study: Any = None
        self._trials: dict[str, Any] = {}

    @property
    def linked_names(self) -> dict[str, list[str]]:
        """By option that is proposed too, the parameters that it follows."""
        return self._linked.names

    def ask(self, count: int) -> list[Values]:
        """Up to so many new configurations; none when there are no more."""
        asked: list[Values] = []
        while self._listed and len(asked) < count:
            values = self._listed.pop(0)
            if self._key(values) not in self._seen:
                self._seen.add(self._key(values))
                asked.append(values)
        if len(asked) < count and not self.whole:
            asked += self._ask_optuna(count - len(asked))
        return asked

    def tell(self, values: Values, ratio: float | None) -> None:
        """What came of a configuration: the incumbent's time over its own; None where it has none."""
        if self.whole:
            return
        key, found = self._key(values), _WORST if ratio is None else ratio
        if key in self._trials:
            self._open_study().tell(self._trials.pop(key), found)
            return
        point = {parameter.name: self._index(parameter, values[parameter.name]) for parameter in self._parameters}
        if self._linked.followers:
            variants = [self._key(values | variant) for variant in self._linked.list_variants(values)]
            point[_FOLLOWS] = variants.index(key) if key in variants else 0
        trial = _load_optuna().trial.create_trial(params=point, distributions=self._distributions(), value=found)
        self._open_study().add_trial(trial)

    def _ask_optuna(self, count: int) -> list[Values]:
        study, repeats = self._open_study(), 0
        asked: list[Values] = []
        while len(asked) < count and repeats < _MOST_REPEATS and len(self._seen) < self.size:
            trial = study.ask(self._distributions())
            values = {parameter.name: parameter.values[trial.params[parameter.name]] for parameter in self._parameters}
            values |= self._linked.list_variants(values)[trial.params.get(_FOLLOWS, 0)]
            key = self._key(values)
            if key in self._seen:
                repeats += 1
                study.tell(trial, state=_load_optuna().trial.TrialState.PRUNED)
                continue
            repeats = 0
            self._seen.add(key)
            self._trials[key] = trial
            asked.append(values)
        return asked

    def _open_study(self) -> Any:
        if self._study is None:
            optuna = _load_optuna()
            optuna.logging.set_verbosity(optuna.logging.ERROR)
            sampler = optuna.samplers.TPESampler(seed=self._seed, n_startup_trials=min(10, self.size // 2 or 1), constant_liar=True)
            self._study = optuna.create_study(direction="maximize", sampler=sampler)
        return self._study

    def _distributions(self) -> dict[str, Any]:
        """Numbers of values: Optuna then knows their order."""
        between = _load_optuna().distributions.IntDistribution
        found = {parameter.name: between(0, len(parameter.values) - 1) for parameter in self._parameters}
        return found | ({_FOLLOWS: between(0, VARIANTS - 1)} if self._linked.followers else {})

    def _list_linked(self, listed: Sequence[Values], firsts: Sequence[Values] = ()) -> list[Values]:
        """The first ones, then each configuration with every choice of what is linked to it, no two alike."""
        found = [*firsts, *(values | variant for values in listed for variant in self._linked.list_variants(values))]
        return list({self._key(values): values for values in found}.values())

    def _complete(self, start: Values) -> Values | None:
        """A start with the present values for what it does not name; None where the space lacks one of its values."""
        values = {parameter.name: start.get(parameter.name, parameter.current) for parameter in self._parameters}
        return values if all(values[parameter.name] in parameter.values for parameter in self._parameters) else None

    def _list_neighbours(self) -> list[Values]:
        """Configurations that differ in one parameter by one step, then by more, parameters in turn."""
        found: list[tuple[int, Values]] = []
        for parameter in self._parameters:
            here = self._index(parameter, parameter.current)
            for number, value in enumerate(parameter.values):
                if number != here:
                    found.append((abs(number - here), self._current | {parameter.name: value}))
        return [values for _, values in sorted(found, key=lambda entry: entry[0])]

    def _distance(self, values: Values) -> tuple[int, int]:
        steps = [abs(self._index(part, values[part.name]) - self._index(part, part.current)) for part in self._parameters]
        return sum(step > 0 for step in steps), sum(steps)

    @staticmethod
    def _index(parameter: Parameter, value: Value) -> int:
        return parameter.values.index(value)

    @staticmethod
    def _key(values: Values) -> str:
        return repr(sorted(values.items()))


def _load_optuna() -> Any:
    """Optuna, whose import takes 0.3 s: a space that is tried whole does not need it."""
    return importlib.import_module("optuna")
