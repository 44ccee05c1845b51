"""The policy that `docs/policies.md` prints, letter by letter: it is short, it is sound, it runs."""

import re

import pytest
from hypothesis import given
from hypothesis import settings as limits

from loadgen.scenarios import load_scenario
from loadgen.simulation import simulate
from services.planner.policies.contract.decision import fault
from services.planner.policies.contract.view import View
from shared.domain.audit import audit
from tests.paths import ROOT
from tests.services.planner.planner_builders import chosen, decide, job, nodes, place_on, view
from tests.services.planner.planner_views import mentioned, views

PAGE = ROOT / "docs/policies.md"


def listing() -> str:
    (found,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


@pytest.fixture(scope="module")
def greedy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its name: a file in a folder that has packages named like ours."""
    folder = tmp_path_factory.mktemp("a project of its own")
    for package in ("schemas", "services", "shared"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text("raise AssertionError('not ours')")
    (folder / "greedy.py").write_text(listing(), encoding="utf-8")
    return f"{folder}/greedy.py:Greedy"


def test_the_example_policy_has_forty_lines() -> None:
    assert len(listing().splitlines()) <= 40


@given(seen=views())
@limits(max_examples=20, deadline=None)
def test_the_example_policy_keeps_to_the_contract(greedy: str, seen: View) -> None:
    decision = decide(greedy, seen)
    assert fault(seen, decision) is None
    assert mentioned(decision) == sorted(job.job_id for job in seen.jobs)
    assert decide(greedy, seen) == decision


def test_the_example_policy_prefers_one_node(greedy: str) -> None:
    """Spread over two nodes a GPU does a fifth less."""
    seen = view([job("spread", (4,)), job("whole", (3,))], nodes(3, 3))
    assert chosen(decide(greedy, seen)) == {"whole": place_on(a0=3)}


def test_the_example_policy_schedules_a_cluster(greedy: str) -> None:
    ran = simulate(load_scenario("tiny"), policy=greedy)
    assert ran.result.policy == greedy
    assert audit(ran.events, drained=True, seqs=ran.seqs) == []
