"""The mutants of a module: its source, changed in one place each. Pure."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from types import CodeType

#: The boundary moved, and turned round.
_ORDER: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_TWINS = (("min", "max"), ("any", "all"), ("bisect_left", "bisect_right"))
_CALLS = {**dict(_TWINS), **{other: one for one, other in _TWINS}, "sorted": "list"}
#: For the type checker, and what is never reached.
_NEVER = ("assert_never(", "raise AssertionError", "cast(")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    #: Within its module; the same wherever in the file it stands.
    key: str
    #: The outermost function that it is in, as `__qualname__` has it.
    function: str
    #: By qualified name and first line: the codes of that function, and of those within it.
    codes: dict[tuple[str, int], CodeType]


def mutants(source: str, path: str) -> Iterator[Mutant]:
    """In the order of the source."""
    for key, function, tree in _changed(source):
        codes = _codes(compile(tree, path, "exec"))
        yield Mutant(key, function, {at: code for at, code in codes if outermost(at[0]) == function})


def keys(source: str) -> set[str]:
    return {key for key, _, _ in _changed(source)}


def outermost(qualname: str) -> str:
    return qualname.split(".<locals>")[0]


def _changed(source: str) -> Iterator[tuple[str, str, ast.Module]]:
    """The tree is changed in place, until the next one is asked for."""
    tree = ast.parse(source)
    for name, function in _functions(tree, ""):
        met: Counter[str] = Counter()
        for place, old, new in list(_changes(function)):
            words = f"{name}: {_words(old)} → {_words(new)}"
            met[words] += 1
            place.put(ast.fix_missing_locations(ast.copy_location(new, old)))
            yield (words if met[words] == 1 else f"{words} #{met[words]}"), name, tree
            place.put(old)


def _functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")


@dataclass(frozen=True)
class _Place:
    parent: ast.AST
    field: str
    at: int | None

    def put(self, node: ast.AST) -> None:
        if self.at is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.at] = node


def _changes(node: ast.AST) -> Iterator[tuple[_Place, ast.AST, ast.AST]]:
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
            continue
        for at, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or _left_alone(child):
                continue
            place = _Place(node, field, at)
            asked = field in ("test", "ifs", "guard")
            yield from ((place, child, new) for new in _instead(child, asked=asked))
            # What is raised is told to people: it matters whether, not with which words.
            if not isinstance(child, ast.Raise):
                yield from _changes(child)


def _left_alone(node: ast.AST) -> bool:
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or (isinstance(node, ast.stmt | ast.expr) and ast.unparse(node).startswith(_NEVER))


def _instead(node: ast.AST, *, asked: bool) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=ops):
            for at, operator in enumerate(ops):
                for other in _ORDER[type(operator)]:
                    yield _with(node, ops=[*ops[:at], other(), *ops[at + 1 :]])
        case ast.BoolOp(op=operator):
            yield _with(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.BinOp(op=operator) if type(operator) in _ARITHMETIC:
            yield _with(node, op=_ARITHMETIC[type(operator)]())
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            yield _with(node, func=ast.Name(_CALLS[name], ast.Load()))
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(ast.Constant(None))
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()
        case ast.AugAssign(op=operator) if type(operator) in _ARITHMETIC:
            yield _with(node, op=_ARITHMETIC[type(operator)]())
        case ast.Raise() | ast.Expr() | ast.Delete():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield ast.Pass()
        case _:
            pass
    if asked and isinstance(node, ast.expr) and not isinstance(node, ast.Compare | ast.UnaryOp):
        yield ast.UnaryOp(ast.Not(), node)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    made = copy(node)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def _words(node: ast.AST) -> str:
    """On one line, and not too long: a repeated one gets a number."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 90 else f"{text[:60]} … {text[-24:]}"


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield (each.co_qualname, each.co_firstlineno), each
            yield from _codes(each)
