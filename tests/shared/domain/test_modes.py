"""Which modules name a mode of synchronisation."""

import ast

from schemas.placement import Sync
from tests.docs.pages import SOURCES, name
from tests.paths import ROOT

RUNS_OR_PLANS = {
    "hopyard/lab/bench/planning/instances.py",
    "hopyard/lab/bench/switching.py",
    "loadgen/world/emulated.py",
    "loadgen/world/learnt.py",
    "loadgen/world/rotas.py",
    "loadgen/world/table.py",
    "services/agent/process/runner.py",
}
"""worlds and runners, which say what they run, and what is benchmarked"""


def test_only_modules_that_run_or_plan_a_mode_name_it() -> None:
    """One struct, one meaning, one branch of the world: all others ask `gangs` for a mode."""
    others = {mode.__name__ for mode in Sync.__args__} - {"Lockstep"}
    naming = {
        name(path)
        for path in SOURCES
        if ROOT / "tests" not in path.parents
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "schemas.placement"
        if others & {alias.name for alias in node.names}
    }
    policies = {one for one in naming if one.startswith("services/planner/policies/")}
    assert naming - policies == {"shared/domain/gangs.py", *RUNS_OR_PLANS}
