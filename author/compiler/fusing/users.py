"""Who reads each value of a forward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from tritonsmith.author.compiler.ir.torch_calls import Permute, Reshape
from tritonsmith.author.compiler.ir.values import (
    Anchor,
    AnchorResult,
    Formula,
    MatrixProduct,
    Reduction,
    Tensor,
    TensorView,
)
from tritonsmith.author.compiler.reading.reader import Forward, NamedValues


class Users:
    """Values by what they are made of."""

    def __init__(self, forward: Forward) -> None:
        self.forward = forward
        self.stored = {id(one) for one in forward.stored}
        """What forward leaves."""
        self.values: dict[int, Tensor] = {}
        self._users: dict[int, list[Tensor]] = {}
        self._above: dict[int, set[int]] = {}
        """By value: what is made of it, as far as it was asked for."""
        self._add(forward.stored)

    def _add(self, values: list[Tensor]) -> None:
        """Note values and what they are made of."""
        todo = list(values)
        while todo:
            one = todo.pop()
            if id(one) not in self.values:
                self.values[id(one)] = one
                for operand in dict.fromkeys(one.operands):
                    self._users.setdefault(id(operand), []).append(one)
                todo += one.operands

    @property
    def products(self) -> list[MatrixProduct]:
        """The products of matrices."""
        return [one for one in self.values.values() if isinstance(one, MatrixProduct)]

    def of(self, value: Tensor) -> list[Tensor]:
        """What reads a value."""
        return self._users.get(id(value), [])

    def results_of(self, anchor: Anchor) -> list[AnchorResult]:
        """The results of an anchor."""
        return [one for one in self.of(anchor) if isinstance(one, AnchorResult)]

    def list_elementwise(self, product: MatrixProduct, reduces: Callable[[Reduction], bool]) -> tuple[list[Tensor], list[Reduction]]:
        """What elementwise work makes of a product's result in its shape, and reductions whose results it may use for that.

        Everything else that it uses is not made of the product. `reduces` says which reductions of such values are allowed.
        """
        above = self.list_above(product)
        made: dict[int, Tensor] = {id(one): one for one in self.results_of(product) if one.shape == product.shape}
        small: dict[int, Tensor] = {}
        moved: dict[int, Tensor] = {}  # with axes in another order
        reductions: list[Reduction] = []
        todo = list(made.values())
        while todo:
            for user in self.of(todo.pop()):
                if id(user) in made or id(user) in small or id(user) in moved or any(user is one for one in reductions):
                    continue
                alone = all(id(one) in made or id(one) in small for one in user.operands if id(one) in above)
                turned = all(id(one) in moved or id(one) in small for one in user.operands if id(one) in above)
                if isinstance(user, Reduction) and (id(user.source) in made or id(user.source) in moved) and reduces(user):
                    reductions.append(user)
                    found: list[Tensor] = list(self.results_of(user))
                    small |= {id(one): one for one in found}
                    todo += found
                elif isinstance(user, Formula) and alone and user.shape == product.shape:
                    made[id(user)] = user
                    todo.append(user)
                elif user.size == product.size and (isinstance(user, Formula) and turned or _is_moved(user)):
                    moved[id(user)] = user
                    todo.append(user)
                elif alone and (isinstance(user, Formula) or has_reshaped(user)) and any(id(one) in small for one in user.operands):
                    small[id(user)] = user
                    todo.append(user)
        return list(made.values()), reductions

    def list_above(self, value: Tensor) -> set[int]:
        """Everything that is made of a value."""
        if id(value) in self._above:
            return self._above[id(value)]
        seen = self._above[id(value)] = set[int]()
        todo = [value]
        while todo:
            for user in self.of(todo.pop()):
                if id(user) not in seen:
                    seen.add(id(user))
                    todo.append(user)
        return seen

    def replace(self, old: Tensor, new: Tensor) -> None:
        """Have everything that reads a value read another one."""
        self._add([new])
        self._above.clear()
        for user in self.of(old):
            self._users.setdefault(id(new), []).append(user)
            for one in fields(user):
                value = getattr(user, one.name)
                if value is old:
                    setattr(user, one.name, new)
                elif isinstance(value, tuple) and any(part is old for part in value):
                    setattr(user, one.name, tuple(new if part is old else part for part in value))
        self._users[id(old)] = []
        forward = self.forward
        forward.results = _exchange(forward.results, old, new)
        forward.updates = _exchange(forward.updates, old, new)
        forward.written = _exchange(forward.written, old, new)
        self.stored = {id(one) for one in forward.stored}


def _exchange(results: Any, old: Tensor, new: Tensor) -> Any:
    """What forward returns, with another value in the place of one."""
    if results is old:
        return new
    if isinstance(results, NamedValues):
        return NamedValues(results.name, _exchange(results.fields, old, new))
    if isinstance(results, dict):
        return {key: _exchange(one, old, new) for key, one in results.items()}
    if isinstance(results, list):
        return [_exchange(one, old, new) for one in results]
    return tuple(_exchange(one, old, new) for one in results) if type(results) is tuple else results


def has_reshaped(value: Tensor) -> bool:
    """Whether a value shows the elements of another one in the same order under another shape."""
    return isinstance(value, TensorView) and isinstance(value.shown, Reshape)


def _is_moved(value: Tensor) -> bool:
    """Whether a value shows all elements of another one with axes in another order, or under another shape."""
    return isinstance(value, TensorView) and isinstance(value.shown, Reshape | Permute)
