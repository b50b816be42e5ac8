"""The head of a function, or of a class with its public members, as its source writes it. Pure."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterator

import tidemill

WIDTH = 100


def function(node: ast.FunctionDef, doc: str | None = None) -> str:
    """Its head, one argument a line where it is long, and an empty body."""
    result = f" -> {_written(node.returns)}" if node.returns else ""
    body = f'\n    """{doc}"""' if doc else " ..."
    arguments = list(_arguments(node.args))
    line = f"def {node.name}({', '.join(arguments)}){result}:"
    if len(line) > WIDTH:
        line = f"def {node.name}(\n" + "".join(f"    {each},\n" for each in arguments) + f"){result}:"
    property_ = "@property\n" if any(_written(each) == "property" for each in node.decorator_list) else ""
    return property_ + line + body


def _arguments(found: ast.arguments) -> Iterator[str]:
    positional = [*found.posonlyargs, *found.args]
    defaults = [None] * (len(positional) - len(found.defaults)) + list(found.defaults)
    for number, (argument, default) in enumerate(zip(positional, defaults, strict=True)):
        yield _argument(argument, default)
        if number + 1 == len(found.posonlyargs):
            yield "/"
    if found.vararg:
        yield f"*{_written(found.vararg)}"
    elif found.kwonlyargs:
        yield "*"
    yield from map(_argument, found.kwonlyargs, found.kw_defaults)
    if found.kwarg:
        yield f"**{_written(found.kwarg)}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    equals = " = " if argument.annotation else "="
    return _written(argument) + (equals + _written(default) if default else "")


def class_(node: ast.ClassDef, only: Collection[str] | None = None) -> Iterator[str]:
    bases = [base for base in map(ast.unparse, node.bases) if base in tidemill.__all__ or base == "Protocol"]
    head = f"class {node.name}({', '.join(bases)}):" if bases else f"class {node.name}:"
    members = [textwrap.indent(each, "    ") for each in _members(node, only)]
    yield head if members else f"{head} ..."
    for before, member in zip(["", *members], members, strict=False):
        yield f"\n{member}" if before and not _is_field(member) else member


def _members(node: ast.ClassDef, only: Collection[str] | None) -> Iterator[str]:
    for member in node.body:
        if only is not None and _name(member) not in only:
            continue
        match member:
            case ast.AnnAssign(target=ast.Name(name)) if not name.startswith("_"):
                yield _written(member)
            case ast.Assign(targets=[ast.Name(name)]) if not name.startswith("_"):
                yield _written(member)
            case ast.FunctionDef(name=name) if name == "__init__" or not name.startswith("_"):
                yield function(member, _first_lines(ast.get_docstring(member)))
            case _:
                pass


def _is_field(code: str) -> bool:
    return not code.lstrip().startswith(("def ", "@"))


def _name(member: ast.stmt) -> str | None:
    match member:
        case ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]) | ast.FunctionDef(name=name):
            return name
        case _:
            return None


def _written(node: ast.AST) -> str:
    return re.sub(r"'([^'\"\\]*)'", r'"\1"', ast.unparse(node))


def _first_lines(doc: str | None) -> str | None:
    return None if doc is None else textwrap.indent(doc.replace('"""', "'''"), "    ").strip()
