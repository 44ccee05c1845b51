"""One word for one thing: inside a service or a package no public class or alias has the name of another."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOUSES = (
    *sorted(
        path.relative_to(ROOT) for path in (ROOT / "services").iterdir() if (path / "__init__.py").exists()
    ),
    *map(Path, ("schemas", "shared", "loadgen", "hopyard", "hopjob")),
)


@pytest.mark.parametrize("house", HOUSES, ids=str)
def test_no_public_class_has_the_name_of_another(house: Path) -> None:
    files = defaultdict[str, list[str]](list)
    for path in sorted((ROOT / house).rglob("*.py")):
        for name in public_kinds(path.read_text("utf-8")):
            files[name].append(str(path.relative_to(ROOT)))
    assert files
    assert {name: where for name, where in files.items() if len(where) > 1} == {}


def public_kinds(source: str) -> Iterator[str]:
    """Names of classes and of aliases for types that stand at a module's top, private ones left out."""
    for statement in ast.parse(source).body:
        match statement:
            case ast.ClassDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not _type_variable(value):
                pass
            case _:
                continue
        if name[0].isupper() and (len(name) == 1 or not name.isupper()):
            yield name


def _type_variable(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "TypeVar"


def test_definitions_that_count_as_public_kinds() -> None:
    source = 'class A: ...\nB = int | str\n_C = int\nD = TypeVar("D")\nLIMIT = 3\nclass _E: ...\nf = 1\n'
    assert list(public_kinds(source)) == ["A", "B"]
