"""The closed grammar in which the contract speaks of values: names, whole numbers, words, None, True, + - * //,
comparisons, and, or, min, max.

`block_size`, `drafter.block_size`, `min(declared, target.max_position_embeddings)`, `declared != None`.
Nothing else can be said, so a contract (also a fork's, which comes from YAML) can be evaluated without trusting it.
"""

from __future__ import annotations

import ast
import operator

_BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}
_COMPARE = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_FUNCTIONS = {"min": min, "max": max}


class Unknown(Exception):
    """The expression has no value here: a name in it is not known (`str()` is the name), or off where a number is needed."""


class Malformed(ValueError):
    """The text is not in the grammar."""


def parse(text):
    """The expression as a checked syntax tree. Raises Malformed."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise Malformed(f"{text!r} is no expression: {error.msg}") from None
    for node in ast.walk(tree):
        if not _allowed(node):
            raise Malformed(f"{text!r}: {type(node).__name__} is not allowed here")
    return tree


def _allowed(node):
    if isinstance(node, ast.Constant):
        return node.value is None or type(node.value) in (int, bool, str)
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1
    return isinstance(node, (ast.Name, ast.BinOp, ast.BoolOp, ast.Load, ast.And, ast.Or, *_BINARY, *_COMPARE))


def names_in(text):
    """The plain and dotted names that an expression speaks of. Raises Malformed."""
    names = set()
    dotted = set()
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Attribute):
            names.add(f"{node.value.id}.{node.attr}")
            dotted.add(node.value)
        elif isinstance(node, ast.Name) and node not in dotted and node.id not in _FUNCTIONS:
            names.add(node.id)
    return names


def evaluate(text, names):
    """The value of an expression over `names`, a mapping of plain and of dotted names. Raises Unknown, Malformed."""
    tree = parse(text)
    try:
        return _value(tree, names)
    except (TypeError, ZeroDivisionError):  # None < 4: what is declared off has no size
        raise Unknown(text) from None


def _value(node, names):
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = node.id if isinstance(node, ast.Name) else f"{node.value.id}.{node.attr}"
        if name not in names:
            raise Unknown(name)
        return names[name]
    if isinstance(node, ast.Call):
        return _FUNCTIONS[node.func.id](*(_value(argument, names) for argument in node.args))
    if isinstance(node, ast.BoolOp):
        return (all if isinstance(node.op, ast.And) else any)([_value(part, names) for part in node.values])
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)](_value(node.left, names), _value(node.right, names))
    (comparison,), (right,) = node.ops, node.comparators
    return _COMPARE[type(comparison)](_value(node.left, names), _value(right, names))
