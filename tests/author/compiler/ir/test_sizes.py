"""Sizes: ints with the expression of symbols that they came from."""

from __future__ import annotations

import copy
import math
import pickle
import random

import pytest
from pydantic import BaseModel

from tritonsmith.author.compiler.ir.printer import print_expression
from tritonsmith.author.compiler.ir.sizes import symbol
from tritonsmith.author.compiler.ir.template import expression

N, K = symbol("N", 1024), symbol("K", 12)


@pytest.mark.parametrize(
    ("size", "value", "text"),
    [
        (N * 4, 4096, "N * 4"),
        (3 + N - 3, 1024, "N"),
        (2 * (N * 3), 6144, "N * 6"),
        ((N * K) // K, 1024, "N"),
        ((N * K * 6) // (K * 3), 2048, "N * 2"),
        ((N * 4) % 4, 0, "0"),
        ((N * 4 + 3) // 4, 1024, "N"),
        ((N + 3) // 4, 256, "(N + 3) // 4"),
        (-(-N // 8), 128, "-(-N // 8)"),
        (10 - N, -1014, "10 - N"),
        (2**K, 4096, "2**K"),
        (N**2, 1048576, "N * N"),
        (math.prod([N, K, 3]), 36864, "K * N * 3"),
        (sum([N, K, -N]), 12, "K"),
        (N * K - K * N, 0, "0"),
        (abs(N - 2000), 976, "2000 - N"),
    ],
)
def test_arithmetic_keeps_the_expression(size: int, value: int, text: str) -> None:
    assert (size, str(size)) == (value, text)


def test_text_of_a_size_says_what_it_depends_on() -> None:
    assert f"torch.empty({(N * 4, 3)}), {N}, {N - N + 2}" == "torch.empty((N * 4, 3)), N, 2" and str(N * K) == "K * N"
    assert print_expression(expression("f({size}) // {size}", size=N * 4)) == "f(N * 4) // (N * 4)"


def test_a_size_is_the_int_elsewhere() -> None:
    assert N == 1024 and hash(N) == hash(1024) and {1024: "a"}[N] == "a" and N > K and f"{N:,}" == "1,024"
    assert list(range(20))[K] == 12 and [0] * K == [0] * 12 and type(N / 2) is float and type(N & 3) is int
    assert type(1024 + 0) is int and type(N - N) is int
    with pytest.raises(TypeError):
        _ = N + "a"  # type: ignore[operator]
    with pytest.raises(ZeroDivisionError):
        _ = N // 0
    assert N + 0.5 == 1024.5


def test_copies_keep_the_expression() -> None:
    for twin in (pickle.loads(pickle.dumps(N * K)), copy.deepcopy([N * K])[0], copy.copy(N * K)):
        assert (twin, str(twin), str(twin // K)) == (12288, "K * N", "N")


def test_a_model_takes_a_size_for_an_int() -> None:
    class Shape(BaseModel):
        sizes: tuple[int, ...]

    assert Shape(sizes=(N, K)).model_dump_json() == '{"sizes":[1024,12]}'


def test_random_arithmetic_holds_at_other_values() -> None:
    source = random.Random(47)
    for _ in range(400):
        values = {name: source.randint(1, 60) for name in "abc"}
        pool: list[int] = [*(symbol(name, value) for name, value in values.items()), 2, 3, 16]
        steps = [(source.choice("+ - * // % neg".split()), source.randrange(99), source.randrange(99)) for _ in range(6)]

        def compute(pool: list[int], steps: list[tuple[str, int, int]] = steps) -> list[int]:
            for word, first, second in steps:
                left, right = pool[first % len(pool)], pool[second % len(pool)]
                if word in ("//", "%"):
                    right = right * right + 1
                pool = [*pool, _calculate(word, left, right)]
            return pool

        sizes = compute(pool)
        assert sizes == compute([*values.values(), 2, 3, 16])
        for _ in range(3):
            others = {name: source.randint(1, 99) for name in "abc"}
            assert [eval(str(size), {}, others) for size in sizes] == compute([*others.values(), 2, 3, 16])


def _calculate(word: str, left: int, right: int) -> int:
    match word:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "//":
            return left // right
        case "%":
            return left % right
        case _:
            return -left
