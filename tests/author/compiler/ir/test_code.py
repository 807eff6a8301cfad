"""Records of code: read, printed, filled and compared."""

from __future__ import annotations

import ast
import random
from dataclasses import replace

import pytest

from recipe_cases.parsed_texts import parse_function, parse_module
from tritonsmith.author.compiler.ir import code
from tritonsmith.author.compiler.ir.code import Binary, Call, Expression, Group, Name, Unary, number
from tritonsmith.author.compiler.ir.parser import parse_expression, parse_statements
from tritonsmith.author.compiler.ir.printer import print_expression, print_function, print_module, print_statements
from tritonsmith.author.compiler.ir.template import TemplateError, expression, statement, statements
from tritonsmith.author.compiler.ir.walk import canonical, find, find_differences, iterate, names_in, put, rename

ELEMENTWISE = '''@triton.jit
def leaky(x_ptr, y_ptr, BLOCK: tl.constexpr):
    """Leaky ReLU of 4000 elements."""
    # each program has a block
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < 4000, other=0.0)

    tl.store(y_ptr + i, tl.where(x > 0.0, x, x * 1e-02), mask=(i < 4000))  # no more'''
ROW = '''@triton.jit
def rows_of_sums(
    linear_ptr, residual_ptr, weight_ptr, bias_ptr, running_mean_ptr, running_var_ptr, result_ptr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    total = tl.zeros((ROWS, 1), tl.float32)
    for start in range(0, 4096, BLOCK):
        k = start + tl.arange(0, BLOCK)[None, :]
        if start >= 2048:  # the later half
            total += tl.sum(tl.load(linear_ptr + row * 4096 + k), 1, keep_dims=True)
        elif not (start == 0 or start == 8) and -row[0] is not None:
            total = total - (total + 1.0)
        else:
            pass
    tl.store(
        result_ptr + row * 123456789 + (tl.arange(0, 1))[None, :] * 8 + (row // 4096) * 96 + (row % 4096) * 8, total / 4096.0,
        mask=row < 60000,
    )'''
ATTENTION = '''@triton.jit
def attention(q_ptr, k_ptr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr = 16):
    most = tl.full((BLOCK_M, 1), float("-inf"), tl.float32)
    m = (tl.arange(0, BLOCK_M))[:, None]
    while most > 0x7FFFFFFF and m[0 : 2 * 4, ::2, ...] != {"a": (1,), **k}:
        high, low = split_alike(q_ptr), (yes if m else no)
        alpha = tl.exp2(most - (high - 15.0)) ** 2 * -(2**-m) @ ~low
    return [alpha, *low], ()'''
HOST = '''class ModelNew(nn.Module):
    """Kernels."""

    def forward(self, x, *given, scale: float = 1.0, **more):
        if x.shape != (30, 2) or x.dtype is not torch.float32 or COMPILED and not x.is_cuda:
            raise ValueError(f"made for {MADE_FOR}, not {describe(x=x)!r:>{width}} {{}}") from None
        linear_weight_high, linear_weight_exponents = self.keep(
            "linear", split_linear, self.layers[0].attention.self_attention.linear_weight, (2, 1, 96, 32), NUMBERS=12345678, LINES=4,
        )
        key = (x.device, [(one.data_ptr(), one._version) for one in given if one is not None]), lambda a, b=1: a
        attention_kernel[(8 * x.shape[0],)](linear, attention, BLOCK_M=32, BLOCK_N=32, num_warps=2, num_stages=2, last_one_of_all=1)
        try:
            with torch.cuda.graph(graph) as held, torch.no_grad():
                assert held, "a graph"
        except (RuntimeError, ValueError) as error:
            return type(key)(one for one in key)
        return {name: v for name, v in more.items()}
'''


@pytest.mark.parametrize("text", [ELEMENTWISE, ROW, ATTENTION])
def test_a_function_is_printed_as_it_was_read(text: str) -> None:
    function = parse_function(text)
    assert print_function(function) == text
    assert not [node for node in iterate(function) if isinstance(node, code.Statement) and node.layout is not None]


def test_a_module_is_printed_as_it_was_read() -> None:
    text = f"import torch\nfrom triton import language as tl\n\nCOUNT: int = 3\nTABLE = (  # of numbers\n    1,\n)\n\n\n{HOST}"
    module = parse_module(text)
    assert print_module(module) == text
    laid = [node for node in iterate(module) if isinstance(node, code.Statement) and node.layout is not None]
    assert [print_statements([replace(node, layout=None)]) for node in laid] == ["TABLE = (1,)"]


def test_a_changed_statement_is_laid_out_anew() -> None:
    module = parse_module("x = f(\n    a,\n    b,\n)\n")
    assert print_module(put(module, {(0, 1, 2): number(3)})) == "x = f(a, 3)\n"


@pytest.mark.parametrize("text", ["a + (b + c)", "(a)", "f((a))", "x[(a, b)]", "-(1)", "(a * b) + c", "((a + b)) * c", "f((x for x in y))"])
def test_parentheses_beyond_need_are_kept(text: str) -> None:
    node = parse_expression(text)
    assert any(isinstance(part, Group) for part in iterate(node)) and print_expression(node) == text


@pytest.mark.parametrize("text", ["(a + b) * c", "a - (b - c)", "(a, b)[0]", "(-a)**b", "not (a or b)", "(a < b) < c", "f((a, b), c)"])
def test_parentheses_that_are_needed_are_no_records(text: str) -> None:
    node = parse_expression(text)
    assert not any(isinstance(part, Group) for part in iterate(node)) and print_expression(node) == text


def _grow(source: random.Random, depth: int) -> Expression:
    def below() -> Expression:
        return _grow(source, depth - 1)

    if depth == 0:
        return source.choice([Name("a"), Name("b"), number(3), number(-2), number(0.5)])
    match source.randrange(10):
        case 0:
            return Unary(source.choice(["-", "~", "not"]), below())
        case 1:
            return code.Compare(("<", "is not")[: (count := source.randint(1, 2))], tuple(below() for _ in range(count + 1)))
        case 2:
            return code.Logical(source.choice(["and", "or"]), (below(), below()))
        case 3:
            return code.Conditional(below(), below(), below())
        case 4:
            return Call(below(), (below(), code.Tuple((below(),))), (code.Keyword("k", below()),))
        case 5:
            return code.Subscript(below(), code.Tuple((below(), code.Slice(None, below()))))
        case 6:
            return code.Attribute(below(), "name")
        case 7:
            return code.Lambda((code.Parameter("a"),), below())
        case _:
            return Binary(below(), source.choice("- / // % ** << ^ | + *".split()), below())


def _wrap(node: Expression) -> str:
    """An expression with parentheses around each operand that is no leaf."""
    children = list(node.children())
    if not children or isinstance(node, code.Slice | code.Tuple | code.Keyword | code.Parameter):
        return print_expression(node)
    holes = {(place,): Group(child) for place, child in enumerate(children) if _has_rank(child)}
    inner = {path: Group(Name(f"hole{path[0]}")) for path in holes}
    text = print_expression(put(node, inner))
    for path, group in holes.items():
        text = text.replace(f"(hole{path[0]})", f"({_wrap(group.inner)})")
    return text


def _has_rank(child: code.Node) -> bool:
    return not isinstance(child, code.Slice | code.Tuple | code.Keyword | code.Parameter)


def _read(text: str) -> str:
    return ast.dump(ast.parse(text, mode="eval"))


def test_printed_trees_are_the_trees_that_python_reads() -> None:
    source = random.Random(47)
    compared = 0
    for _ in range(1500):
        tree = _grow(source, source.randint(1, 4))
        text = print_expression(tree)
        assert print_expression(parse_expression(text)) == text
        chained = any(
            isinstance(part, Binary) and part.operator in "+*|&" and isinstance(part.right, Binary) and part.right.operator == part.operator
            for part in iterate(tree)
        )
        if not chained:  # those are read from the left
            assert _read(text) == _read(_wrap(tree)), text
            assert parse_expression(text) == tree
            compared += 1
    assert compared > 1000


def test_a_template_is_filled() -> None:
    load = expression("tl.load({p} + {i}, mask={m}, other=0.0)", p="x_ptr", i=parse_expression("i * 4 + k"), m="inside")
    assert print_expression(load) == "tl.load(x_ptr + i * 4 + k, mask=inside, other=0.0)"
    assert print_expression(expression("{a} * {b}", a=parse_expression("x + y"), b=-2)) == "(x + y) * -2"
    assert expression("{a} * ({b})", a="x", b=parse_expression("y + z")) == parse_expression("x * (y + z)")
    cast = expression("v.to(tl.{dtype}, {key}={on})", dtype="float16", key="bitcast", on=True)
    assert print_expression(cast) == "v.to(tl.float16, bitcast=True)"
    assert print_expression(expression("{a}", a=-3)) == "-3"
    assert print_expression(expression("f(a, {*args}, b=1)", args=["x", 1e-05])) == "f(a, x, 1e-05, b=1)"
    assert print_expression(expression("f(a, {*args})", args={"n": 3})) == "f(a, n=3)"


def test_a_template_of_statements_is_filled() -> None:
    body = statements("{total} += {v}\nuse({total})", total="total", v=parse_expression("a, b"))
    made = statement(
        """
        def {name}({*parameters}):
            for {k} in range(0, {n}):
                {body}
            return {k}
        """,
        name="sums", parameters=["x", code.Parameter("N", parse_expression("tl.constexpr"))], k="k", n=4, body=body,
    )  # fmt: skip
    assert print_statements([made]) == (
        "def sums(x, N: tl.constexpr):\n    for k in range(0, 4):\n        total += a, b\n        use(total)\n    return k"
    )


@pytest.mark.parametrize(
    ("template", "values", "said"),
    [
        ("{a} + {b}", {"a": 1}, "no value for {b}"),
        ("{a}", {"a": 1, "c": 2}, "no hole for c"),
        ("{a} + 1", {"a": "x + y"}, "{a} takes one identifier"),
        ("x.{a}", {"a": 3}, "{a} takes one identifier"),
        ("f({*a})", {"a": "x"}, "{*a} takes a sequence"),
        ("{a}", {"a": object()}, "{a} takes an expression"),
    ],
)
def test_a_template_that_does_not_fit_is_refused(template: str, values: dict[str, object], said: str) -> None:
    with pytest.raises(TemplateError, match=said.replace("{", r"\{").replace("*", r"\*")):
        expression(template, **values)  # type: ignore[arg-type]


def test_a_hole_is_not_printed() -> None:
    with pytest.raises(ValueError, match="hole"):
        print_expression(parse_expression("{a} + 1"))


def test_functions_that_compute_alike_are_equal_by_canonical() -> None:
    twin = ELEMENTWISE.replace("leaky", "other").replace("x_ptr", "input_ptr").replace(" x ", " value ").replace("x,", "value,")
    twin = twin.replace("(x >", "(value >").replace("    # each program has a block\n", "").replace("Leaky", "A leaky")
    assert twin != ELEMENTWISE and parse_function(twin) != parse_function(ELEMENTWISE)
    assert canonical(parse_function(twin)) == canonical(parse_function(ELEMENTWISE))
    assert canonical(parse_function(twin.replace("value * 1e-02", "i * 1e-02"))) != canonical(parse_function(twin))
    assert hash(canonical(parse_function(twin))) == hash(canonical(parse_function(ELEMENTWISE)))


def test_differing_numbers_are_found_and_become_parameters() -> None:
    first, second = parse_function(ELEMENTWISE), parse_function(ELEMENTWISE.replace("i < 4000", "i < -8"))
    differences = find_differences(first, second)
    assert differences is not None and [(print_expression(a), print_expression(b)) for _, a, b in differences] == [("4000", "-8")] * 2
    assert all(find(first, path) == left and find(second, path) == right for path, left, right in differences)
    merged = put(first, {path: Name("N") for path, *_ in differences})
    assert print_function(merged) == ELEMENTWISE.replace("i < 4000", "i < N")
    assert find_differences(first, parse_function(ROW)) is None
    assert find_differences(parse_expression("f(a, k=1)"), parse_expression("f(a, j=1)")) is None
    assert number(1) != number(1.0)


def test_names() -> None:
    node = parse_expression("f(x.name, [m for m in x], k=n)")
    assert names_in(node) == {"f", "x", "m", "n"}
    assert print_expression(rename(node, {"x": "y", "k": "z", "name": "w"})) == "f(y.name, [m for m in y], k=n)"
    twice = put(parse_expression("n * 2 + (n)"), dict.fromkeys([(0, 0), (1, 0)], parse_expression("a + b")))
    assert print_expression(twice) == "(a + b) * 2 + (a + b)"


@pytest.mark.parametrize("text", ["a +", "if x:", "f(a=1, b)", "x = = 2", "    a\nb", "else:\n    a"])
def test_what_is_no_code_is_refused(text: str) -> None:
    with pytest.raises(SyntaxError):
        parse_statements(text)
