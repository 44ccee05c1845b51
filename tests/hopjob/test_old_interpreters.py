"""The plug-in runs in the interpreters of jobs: Python 3.9, the standard library and torch."""

import ast
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

MODULES = sorted((ROOT / "hopjob").rglob("*.py"))
TRAINERS = {"huggingface.py": {"transformers"}, "lightning.py": {"lightning"}}
LATER = {"tomllib", "zoneinfo"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_python_3_9(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"), feature_version=(3, 9))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Match | ast.TryStar)]
    annotated = any(isinstance(node, ast.AnnAssign | ast.arg) for node in ast.walk(tree))
    lazy = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    assert lazy or not annotated, "annotations are read at run time without the import"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_the_standard_library_and_torch(path: Path) -> None:
    allowed = sys.stdlib_module_names - LATER | {"torch", "hopjob"} | TRAINERS.get(path.name, set())
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        assert {name.partition(".")[0] for name in names} <= allowed
