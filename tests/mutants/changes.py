"""The mutants of a module: its source with one thing changed, as cosmic-ray's operators change it.

What no test can hold is left alone: annotations, which are the type checker's, and guards against what no
caller does.
"""

import ast
from collections.abc import Iterator

import msgspec
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

GUARDS = ("frozen", "kw_only", "strict")
"""arguments of classes and of `zip`"""

Position = tuple[int, int]
"""line from 1, column from 0"""


class Change(msgspec.Struct, frozen=True):
    line: int
    source: str
    """of the whole module, changed"""

    @property
    def becomes(self) -> str:
        """The line as it reads now."""
        return self.source.splitlines()[self.line - 1].strip()


def changes(source: str) -> Iterator[Change]:
    """Each once, a statement of the module after another: a whole module is long to read for each change."""
    lines = source.splitlines(keepends=True)
    starts = [min([one.lineno, *_decorators(one)]) - 1 for one in ast.parse(source).body]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        before, after = "".join(lines[:start]), "".join(lines[end:])
        for line, changed in _changed("".join(lines[start:end])):
            yield Change(start + line, before + changed + after)


def _decorators(statement: ast.stmt) -> list[int]:
    """Lines of decorators."""
    return [one.lineno for one in getattr(statement, "decorator_list", [])]


def _changed(statement: str) -> Iterator[tuple[int, str]]:
    """Line and source; what does not compile, or means the same, is no change."""
    alone = list(_left_alone(statement))
    seen = {_meaning(statement)}
    for kind in map(get_operator, operator_names()):
        if kind.arguments():
            continue
        for occurrence, at in enumerate(_positions(statement, kind())):
            if any(begin <= at < end for begin, end in alone):
                continue
            changed = mutate_code(statement, kind(), occurrence)
            meaning = _meaning(changed)
            if meaning is not None and meaning not in seen:
                seen.add(meaning)
                yield _first_unlike(statement, changed), changed


def _first_unlike(before: str, after: str) -> int:
    """Line, from 1."""
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    return next(number for number, (old, new) in enumerate(pairs, 1) if old != new)


def _positions(statement: str, operator: object) -> Iterator[Position]:
    """Where an operator finds something to change, in the order of its occurrences."""
    for node in ast_nodes(get_ast(statement)):
        if getattr(node.parent, "type", None) == "parameters":
            continue  # the star between parameters is no product
        for start, _ in operator.mutation_positions(node):  # type: ignore[attr-defined]
            yield start


def _meaning(source: str) -> str | None:
    try:
        return ast.dump(ast.parse(source))
    except SyntaxError:
        return None


def _left_alone(source: str) -> Iterator[tuple[Position, Position]]:
    """Where annotations and guards begin and end."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.AnnAssign(annotation=found) | ast.arg(annotation=ast.expr() as found):
                yield _span(found)
            case ast.FunctionDef(returns=ast.expr() as found):
                yield _span(found)
            case ast.keyword(arg=name, value=found) if name in GUARDS:
                yield _span(found)
            case _:
                pass


def _span(found: ast.expr) -> tuple[Position, Position]:
    assert found.end_lineno is not None
    assert found.end_col_offset is not None
    return (found.lineno, found.col_offset), (found.end_lineno, found.end_col_offset)
