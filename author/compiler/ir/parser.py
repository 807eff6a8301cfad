"""Records of a text in Python's syntax. Templates are read with it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from tritonsmith.author.compiler.ir import code
from tritonsmith.author.compiler.ir.code import Expression, Statement
from tritonsmith.author.compiler.ir.precedence import (
    AND,
    COMPARISON,
    CONDITIONAL,
    LAMBDA,
    NOT,
    OPERATORS,
    OR,
    SIGN,
    tidy,
)  # fmt: skip
from tritonsmith.author.compiler.ir.tokens import Line, Token, split_lines, split_tokens

T = TypeVar("T", bound=Statement)
Finish = Callable[[Statement, Line, bool], Statement]
"""What is done to each statement that is read, given its line and whether it stands in a method."""
_COMPARISONS = ("<", ">", "<=", ">=", "==", "!=", "in", "not", "is")
_AUGMENTED = frozenset(f"{operator}=" for operator in OPERATORS)


def parse_expression(text: str) -> Expression:
    """The record of an expression: `parse_expression("a + 1")` is `Binary(Name("a"), "+", Number(1, "1"))`.

    Raises SyntaxError where the text is no expression.
    """
    reader = _Reader(split_tokens(text))
    value = reader.read_tuple()
    reader.end()
    holder = tidy(code.Evaluate(value))
    return holder.value


def parse_statements(text: str, finish: Finish | None = None) -> tuple[Statement, ...]:
    """The records of statements. `finish` may change each one that is read. Raises SyntaxError."""
    lines = split_lines(text)
    reader = _BlockReader(lines, finish)
    first = next((line.indent for line in lines if line.tokens), 0)
    body = reader.read_block(first, False, whole=True)
    if reader.place < len(lines):
        raise SyntaxError(f"a line is indented less than the first: {[token.text for token in lines[reader.place].tokens]}")
    return body


class _Reader:
    """Expressions from tokens, each by how strongly its operators bind."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.place = tokens, 0

    # Tokens

    @property
    def next(self) -> str:
        """The text of the next token; empty at the end."""
        return self.tokens[self.place].text if self.place < len(self.tokens) else ""

    def take(self, text: str) -> bool:
        """Whether the next token is this one; it is passed then."""
        if self.next != text:
            return False
        self.place += 1
        return True

    def expect(self, text: str) -> None:
        """Pass this token. Raises SyntaxError where another one is next."""
        if not self.take(text):
            near = " ".join(token.text for token in self.tokens[max(self.place - 8, 0) : self.place + 8])
            raise SyntaxError(f"{text!r} is missing before {self.next!r} in: {near}")

    def end(self) -> None:
        """Raise SyntaxError where tokens are left."""
        if self.place < len(self.tokens):
            self.expect("the end")

    def read_identifier(self) -> str:
        """A name, or a hole that stands for one, in braces."""
        kind, text = self.tokens[self.place][:2] if self.place < len(self.tokens) else ("", "")
        if kind not in ("name", "hole"):
            self.expect("a name")
        self.place += 1
        return text

    # Expressions

    def read_tuple(self) -> Expression:
        """An expression, or several with commas between."""
        first = self.read_item()
        if self.next != ",":
            return first
        items = [first]
        while self.take(",") and self.next not in ("", ")", "]", "}", "=", ":", "in"):
            items.append(self.read_item())
        return tidy(code.Tuple(tuple(items)))

    def read_item(self) -> Expression:
        """An expression that may have a star."""
        return code.Star(self.read(COMPARISON + 1)) if self.take("*") else self.read(LAMBDA)

    def read(self, least: int) -> Expression:
        """An expression whose operators bind at least so strongly."""
        if self.next == "lambda":
            return self._read_lambda()
        left = self._read_prefix()
        while True:
            word = self.next
            if word in OPERATORS and OPERATORS[word] >= least:
                self.place += 1
                left = tidy(code.Binary(left, word, self.read(OPERATORS[word] + 1 if word != "**" else SIGN)))
            elif word in _COMPARISONS and least <= COMPARISON:
                left = self._read_comparison(left)
            elif word in ("and", "or") and least <= (rank := AND if word == "and" else OR):
                operands = [left]
                while self.take(word):
                    operands.append(self.read(rank + 1))
                left = tidy(code.Logical(word, tuple(operands)))
            elif word == "if" and least <= CONDITIONAL:
                self.place += 1
                condition = self.read(OR)
                self.expect("else")
                left = tidy(code.Conditional(left, condition, self.read(LAMBDA)))
            else:
                return left

    def _read_prefix(self) -> Expression:
        word = self.next
        if word in ("-", "+", "~", "not"):
            self.place += 1
            return tidy(code.Unary(word, self.read(NOT if word == "not" else SIGN)))
        value = self._read_atom()
        while self.next in (".", "(", "["):
            value = self._read_postfix(value)
        return value

    def _read_postfix(self, value: Expression) -> Expression:
        if self.take("."):
            return tidy(code.Attribute(value, self.read_identifier()))
        if self.take("["):
            index = self._read_index()
            self.expect("]")
            return tidy(code.Subscript(value, index))
        self.expect("(")
        return self._read_call(value)

    def _read_call(self, function: Expression) -> Expression:
        arguments: list[Expression] = []
        keywords: list[code.Keyword] = []
        while not self.take(")"):
            if self.take("**"):
                keywords.append(tidy(code.Keyword("", self.read(LAMBDA))))
            elif self.tokens[self.place].kind in ("name", "hole") and self._ahead() == "=":
                name = self.read_identifier()
                self.expect("=")
                keywords.append(tidy(code.Keyword(name, self.read(LAMBDA))))
            else:
                item = self.read_item()
                if code.is_generator(item) and self.next == ")" and not (arguments or keywords):
                    item = code.Group(item)
                if self.next == "for":
                    item = self._read_clauses("(", item)
                if keywords and not isinstance(item, code.Hole):
                    raise SyntaxError("a positional argument stands behind a keyword")
                arguments.append(item)
            if self.next != ")":
                self.expect(",")
        return tidy(code.Call(function, tuple(arguments), tuple(keywords)))

    def _ahead(self) -> str:
        return self.tokens[self.place + 1].text if self.place + 1 < len(self.tokens) else ""

    def _read_index(self) -> Expression:
        items, comma = [self._read_slice()], False
        while self.take(","):
            comma = True
            if self.next == "]":
                break
            items.append(self._read_slice())
        return tidy(code.Tuple(tuple(items))) if comma else items[0]

    def _read_slice(self) -> Expression:
        lower = None if self.next == ":" else self.read_item()
        if not self.take(":"):
            assert lower is not None
            return lower
        upper = None if self.next in (":", ",", "]") else self.read(LAMBDA)
        step = self.read(LAMBDA) if self.take(":") and self.next not in (",", "]") else None
        return tidy(code.Slice(lower, upper, step))

    def _read_comparison(self, left: Expression) -> Expression:
        operators, operands = [], [left]
        while self.next in _COMPARISONS:
            word = self.next
            self.place += 1
            if word == "not":
                self.expect("in")
                word = "not in"
            elif word == "is" and self.take("not"):
                word = "is not"
            operators.append(word)
            operands.append(self.read(COMPARISON + 1))
        return tidy(code.Compare(tuple(operators), tuple(operands)))

    def _read_lambda(self) -> Expression:
        self.expect("lambda")
        parameters = self.read_parameters(":", annotated=False)
        return tidy(code.Lambda(parameters, self.read(LAMBDA)))

    def _read_atom(self) -> Expression:
        if self.place >= len(self.tokens):
            self.expect("an expression")
        kind, text = self.tokens[self.place][:2]
        self.place += 1
        if kind == "number":
            return code.Number(ast.literal_eval(text), text)
        if kind == "string":
            if self.place < len(self.tokens) and self.tokens[self.place].kind == "string":
                raise SyntaxError("strings side by side")
            return read_string(text)
        if kind == "hole":
            return code.Hole(text.strip("{*}"), "*" if "*" in text else "")
        if kind == "name" or text == "...":
            return code.Word(text) if text in ("True", "False", "None", "...") else code.Name(text)
        if text not in ("(", "[", "{"):
            self.place -= 1
            self.expect("an expression")
        return self._read_bracket(text)

    def _read_bracket(self, opening: str) -> Expression:
        closing = {"(": ")", "[": "]", "{": "}"}[opening]
        items: list[Expression] = []
        comma = False
        while not self.take(closing):
            items.append(self._read_entry() if opening == "{" else self.read_item())
            if self.next == "for":
                value = self._read_clauses(opening, items[0])
                self.expect(closing)
                return value
            comma = self.take(",")
            if not comma and self.next != closing:
                self.expect(closing)
        if opening == "{":
            return tidy(code.Dict(tuple(item for item in items if isinstance(item, code.Entry))))
        if opening == "[":
            return tidy(code.List(tuple(items)))
        if len(items) == 1 and not comma and not isinstance(items[0], code.Star):
            return tidy(code.Group(items[0]))
        value = tidy(code.Tuple(tuple(items)))
        return code.Group(value) if items else value

    def _read_entry(self) -> code.Entry:
        if self.take("**"):
            return tidy(code.Entry(None, self.read(COMPARISON + 1)))
        key = self.read(LAMBDA)
        self.expect(":")
        return tidy(code.Entry(key, self.read(LAMBDA)))

    def _read_clauses(self, bracket: str, element: Expression) -> Expression:
        clauses = []
        while self.take("for"):
            target = self.read_target()
            source, conditions = self.read(OR), []
            while self.take("if"):
                conditions.append(self.read(OR))
            clauses.append(tidy(code.Clause(target, source, tuple(conditions))))
        return tidy(code.Comprehension(bracket, element, tuple(clauses)))

    def read_target(self) -> Expression:
        """What a loop assigns to, up to and with `in`."""
        items, comma = [], False
        while not self.take("in"):
            items.append(code.Star(self.read(COMPARISON + 1)) if self.take("*") else self.read(COMPARISON + 1))
            comma = self.take(",") or comma
        return code.Tuple(tuple(items)) if comma else items[0]

    def read_parameters(self, closing: str, annotated: bool = True) -> tuple[code.Parameter, ...]:
        """Parameters up to and with what closes them."""
        found: list[code.Parameter] = []
        while not self.take(closing):
            star = "**" if self.take("**") else "*" if self.take("*") else ""
            name = "" if star and self.next == "," else self.read_identifier()
            annotation = self.read(LAMBDA) if annotated and self.take(":") else None
            default = self.read(LAMBDA) if self.take("=") else None
            found.append(tidy(code.Parameter(name, annotation, default, star)))
            if self.next != closing:
                self.expect(",")
        return tuple(found)


def read_string(spelling: str) -> Expression:
    """The record of a string as it is written; an f-string is read into its parts."""
    opening = spelling[: len(spelling) - len(spelling.lstrip("rRbBfFuU"))]
    quotes = spelling[len(opening) :][:3] if spelling[len(opening) :].startswith(('"""', "'''")) else spelling[len(opening)]
    if "f" not in opening.lower():
        return code.String(spelling)
    body = spelling[len(opening) + len(quotes) : -len(quotes)]
    return code.FormattedString(opening + quotes, tuple(_split_formatted(body)))


def _split_formatted(body: str) -> Iterator[code.String | code.FormattedValue]:
    place = start = 0
    while place < len(body):
        if body[place : place + 2] in ("{{", "}}"):
            place += 2
        elif body[place] == "{":
            if start < place:
                yield code.String(body[start:place])
            end, suffix = _find_end(body, place + 1)
            yield code.FormattedValue(parse_expression(body[place + 1 : suffix]), body[suffix:end])
            place = start = end + 1
        else:
            place += 1
    if start < place:
        yield code.String(body[start:place])


def _find_end(body: str, start: int) -> tuple[int, int]:
    """Where a value of an f-string ends, and where its conversion and format begin."""
    depth, suffix, place = 0, 0, start
    while depth or body[place] != "}":
        letter = body[place]
        if letter in "\"'":
            place = body.index(letter, place + 1)
        depth += (letter in "([{") - (letter in ")]}")
        if not depth and not suffix and (letter == ":" or letter == "!" and body[place + 1] != "="):
            suffix = place
        place += 1
    return place, suffix or place


class _BlockReader:
    """Statements from lines, block by block."""

    def __init__(self, lines: list[Line], finish: Finish | None) -> None:
        self.lines, self.place, self.finish = lines, 0, finish

    def read_block(self, indent: int, method: bool, whole: bool = False) -> tuple[Statement, ...]:
        """The statements of one indentation, from the next line on; empty lines at its end belong to the block around."""
        body: list[Statement] = []
        while self.place < len(self.lines):
            at = self.place
            while at < len(self.lines) and not self.lines[at].tokens and not self.lines[at].comment:
                at += 1
            if at == len(self.lines) and not whole or at < len(self.lines) and self.lines[at].indent < indent:
                break
            spaces = [line.indent for line in self.lines[self.place : at]]
            body += [code.Blank(layout=((0, " " * count),) if count else None) for count in spaces]
            self.place = at
            if at < len(self.lines):
                body += self._read_statement(indent, method, body)
        return tuple(body)

    def _read_statement(self, indent: int, method: bool, before: list[Statement]) -> list[Statement]:
        line = self.lines[self.place]
        if line.indent != indent and line.tokens:
            raise SyntaxError(f"a line is indented by {line.indent}, its block by {indent}")
        self.place += 1
        if not line.tokens:
            return [self._finish(code.Comment(line.comment), line, method)]
        reader = _Reader(line.tokens)
        word = reader.next
        if word in ("elif", "else", "except"):
            return self._continue(reader, line, method, before)
        if word in ("@", "def"):
            return [self._read_function(reader, line, indent, method)]
        if word in ("for", "while", "if", "with", "class", "try"):
            return [self._read_compound(reader, line, indent, method)]
        node = _read_simple(reader)
        reader.end()
        return [self._finish(node, line, method)]

    def _finish(self, node: T, line: Line, method: bool) -> T:
        node = tidy(node)
        if line.comment and line.tokens:
            node = replace(node, comment=line.comment)
        if self.finish is not None:
            finished = self.finish(node, line, method)
            assert isinstance(finished, type(node))
            return finished
        return node

    def _read_body(self, reader: _Reader, indent: int, method: bool) -> tuple[Statement, ...]:
        reader.expect(":")
        reader.end()
        following = next((line for line in self.lines[self.place :] if line.tokens), None)
        if following is None or following.indent <= indent:
            raise SyntaxError("a block has no statements")
        return self.read_block(following.indent, method)

    def _read_function(self, reader: _Reader, line: Line, indent: int, method: bool) -> Statement:
        marks = []
        while reader.take("@"):
            mark = code.Decorator(reader.read(LAMBDA))
            reader.end()
            marks.append(self._finish(mark, line, method))
            line = self.lines[self.place]
            reader = _Reader(line.tokens)
            self.place += 1
        reader.expect("def")
        name = reader.read_identifier()
        reader.expect("(")
        parameters = reader.read_parameters(")")
        returns = reader.read(LAMBDA) if reader.take("->") else None
        body = self._read_body(reader, indent, method or indent > 0)
        return self._finish(code.Function(tuple(marks), name, parameters, returns, body), line, method)

    def _read_compound(self, reader: _Reader, line: Line, indent: int, method: bool) -> Statement:
        word = reader.next
        reader.place += 1
        node: Statement
        if word == "for":
            target = reader.read_target()
            source = reader.read_tuple()
            node = code.For(target, source, self._read_body(reader, indent, method))
        elif word == "while":
            node = code.While(reader.read(LAMBDA), self._read_body(reader, indent, method))
        elif word == "if":
            branch = code.Branch(reader.read(LAMBDA), self._read_body(reader, indent, method))
            return code.If((self._finish(branch, line, method),))
        elif word == "with":
            items = _read_aliases(reader)
            node = code.With(items, self._read_body(reader, indent, method))
        elif word == "try":
            node = code.Try(self._read_body(reader, indent, method), ())
        else:
            name, bases = reader.read_identifier(), list[Expression]()
            if reader.take("("):
                while not reader.take(")"):
                    bases.append(reader.read(LAMBDA))
                    reader.take(",")
            node = code.Class(name, tuple(bases), self._read_body(reader, indent, method))
        return self._finish(node, line, method)

    def _continue(self, reader: _Reader, line: Line, method: bool, before: list[Statement]) -> list[Statement]:
        """A further branch, or a handler: it becomes a part of the statement before."""
        word, last = reader.next, before.pop() if before else None
        reader.place += 1
        if isinstance(last, code.If) and word != "except":
            condition = reader.read(LAMBDA) if word == "elif" else None
            branch = code.Branch(condition, self._read_body(reader, line.indent, method))
            return [replace(last, branches=(*last.branches, self._finish(branch, line, method)))]
        if isinstance(last, code.Try) and word == "except":
            kind = None if reader.next == ":" else reader.read(LAMBDA)
            target = code.Name(reader.read_identifier()) if reader.take("as") else None
            handler = code.Handler(kind, target, self._read_body(reader, line.indent, method))
            return [replace(last, handlers=(*last.handlers, self._finish(handler, line, method)))]
        raise SyntaxError(f"nothing stands before {word!r}")


def _read_aliases(reader: _Reader) -> tuple[code.Alias, ...]:
    items: list[code.Alias] = []
    while not items or reader.take(","):
        value = reader.read(LAMBDA)
        items.append(tidy(code.Alias(value, reader.read(LAMBDA) if reader.take("as") else None)))
    return tuple(items)


def _read_simple(reader: _Reader) -> Statement:
    """A statement without a body."""
    word = reader.next
    reader.place += 1
    match word:
        case "return":
            return code.Return(reader.read_tuple() if reader.next else None)
        case "raise":
            value = reader.read(LAMBDA) if reader.next else None
            return code.Raise(value, reader.read(LAMBDA) if reader.take("from") else None)
        case "assert":
            condition = reader.read(LAMBDA)
            return code.Assert(condition, reader.read(LAMBDA) if reader.take(",") else None)
        case "pass" | "break" | "continue":
            return code.Simple(word)
        case "import":
            return code.Import(None, _read_aliases(reader))
        case "from":
            source = reader.read(LAMBDA)
            reader.expect("import")
            return code.Import(source, _read_aliases(reader))
    reader.place -= 1
    value = reader.read_tuple()
    if reader.take(":"):
        annotation = reader.read(LAMBDA)
        return code.Assign((value,), annotation, reader.read_tuple() if reader.take("=") else None)
    if reader.next in _AUGMENTED:
        operator = reader.next[:-1]
        reader.place += 1
        return code.Augment(value, operator, reader.read_tuple())
    values = [value]
    while reader.take("="):
        values.append(reader.read_tuple())
    return code.Assign(tuple(values[:-1]), None, values[-1]) if len(values) > 1 else code.Evaluate(value)
