"""Runs a script as `python SCRIPT` does, and reports its end."""

from __future__ import annotations

import ast
import importlib.util
import io
import pkgutil
import sys
from pathlib import Path
from runpy import _run_code, _run_module_as_main  # type: ignore[attr-defined] # as Python itself
from types import CodeType, ModuleType
from typing import NoReturn

from hopjob.process import this_process

TRAINERS = {"hopjob.huggingface", "hopjob.lightning"}
"""modules with callbacks for trainers, which connect the ranks before they call them"""
ELASTIC = {"hopjob", *TRAINERS}
"""modules that make a script elastic; a script that imports one counts as attached"""
NO_SCRIPT = 2
"""exit code of Python if it cannot open the script; the agent looks for it and for Python's words"""
USAGE = "usage: python -m hopjob SCRIPT [ARGUMENT ...] | -m MODULE [ARGUMENT ...]"


def run(arguments: list[str]) -> NoReturn:
    if not arguments or arguments == ["-m"]:
        sys.exit(USAGE)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # readers of the output see lines at once
    module = arguments[0] == "-m"
    sys.argv = arguments[1:] if module else arguments
    if not module:
        sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    script = _file_of_module(sys.argv[0]) if module else sys.argv[0]
    if missing := _missing(script, sys.argv[0]):
        sys.stderr.write(f"{sys.executable}: can't open file {missing}\n")
        sys.exit(NO_SCRIPT)
    used = imported(script or "")
    process = this_process(attached=bool(used & ELASTIC), launched=True)
    if used & ELASTIC:
        process.stop_on_signal()
    if "hopjob" not in used or used & TRAINERS:  # else it meets its peers by `attach`
        process.begin_watched()
    process.script_ended(_code_of(sys.argv[0], module=module))
    raise AssertionError


def _missing(script: str | None, name: str) -> str:
    """Why the script cannot be opened; empty if it can be. `name`: of the script or module."""
    if script is None:
        return f"of a module: no module named {name}"
    try:
        if script and not Path(script).is_dir():
            with Path(script).open("rb"):
                pass
    except OSError as error:
        return f"{script!r}: [Errno {error.errno}] {error.strerror}"
    return ""


def _code_of(name: str, *, module: bool) -> int:
    """The exit code of the script; exceptions pass through."""
    try:
        _run(name, module=module)
    except SystemExit as ended:
        return exit_code(ended)
    return 0


def exit_code(ended: SystemExit) -> int:
    """The exit code that Python makes of it; a text is printed."""
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    sys.stderr.write(f"{ended.code}\n")
    return 1


def _run(name: str, *, module: bool) -> None:
    """Run the script as `__main__`, which it stays: its threads and exit handlers may need it later.

    As under Python its `__file__` is absolute: it may look for files there after it has changed its folder,
    and processes that it spawns read it again.
    """
    main = sys.modules["__main__"] = ModuleType("__main__")
    path = str(Path(name).absolute())
    if module:
        _run_module_as_main(name)
    elif pkgutil.get_importer(path) is not None:  # a folder or an archive
        sys.path[0] = path
        _run_module_as_main("__main__", alter_argv=False)
    else:
        _run_code(_compiled(path), vars(main), mod_name="__main__", script_name=path)


def _compiled(path: str) -> CodeType:
    with io.open_code(path) as file:
        return pkgutil.read_code(file) or compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)


def imported(path: str) -> set[str]:
    """Modules that a file imports by name, and what it imports from modules, which may be modules too.

    Empty if it cannot be read; running it then shows why.
    """
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _file_of_module(name: str) -> str | None:
    """The module's file; None: there is no such module; empty: running it shows why it cannot be imported.

    Finding it does not run the module, but imports its package, as running does.
    """
    sys.path[0] = str(Path.cwd())
    try:
        found = importlib.util.find_spec(name)
        if found is not None and found.submodule_search_locations is not None:
            found = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        part = getattr(error, "name", None)
        return None if f"{name}.".startswith(f"{part}.") else ""
    return (found.origin or "") if found is not None else None
