"""A run is a function of scenario, seed, policy and version, whatever process it runs in."""

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
import pytest

from hopyard.lab.experiments.baselines import AS_PUBLISHED
from loadgen.fault_injection import Stack
from loadgen.scenarios import load_scenario
from loadgen.simulation import simulate
from loadgen.stack import MemoryStack
from schemas.codec import decode_fact
from schemas.results import RunResult
from shared.domain.audit import audit
from tests.simulation.storms import SMALL, stormy

HERE = Path(__file__).parent

PRINT_HASHES = """
from tests.simulation.storms import SMALL, stormy
from loadgen.simulation import simulate
print(simulate(SMALL).result.event_log_hash, stormy(1).result.event_log_hash)
"""


PRINT_HASHES_OF_POLICIES = """
import msgspec
from loadgen.scenarios import load_scenario
from loadgen.simulation import simulate
from services.planner.policies.registry import names
whole = load_scenario("hare-15")
part = msgspec.structs.replace(whole, workload=msgspec.structs.replace(whole.workload, count=16))
print(*[f"{name}:{simulate(part, policy=name).result.event_log_hash}" for name in names()])
"""
"""jobs of several counts, some of which wait, on four types of GPUs"""


def hashes() -> str:
    return f"{simulate(SMALL).result.event_log_hash} {stormy(1).result.event_log_hash}"


known_hashes = cache(hashes)
"""of this process's first such runs"""


def hashes_elsewhere(hash_seed: int, before: str = "", show: str = PRINT_HASHES) -> str:
    """From a new process that did something `before`."""
    environ = os.environ | {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": f"{HERE}:{HERE.parent.parent}"}
    ran = subprocess.run(
        [sys.executable, "-c", before + show],
        env=environ,
        capture_output=True,
        text=True,
        timeout=400,
        check=True,
    )
    return ran.stdout.split("\n")[-2]


def test_the_same_run_twice_gives_the_same_event_log() -> None:
    assert hashes() == known_hashes()


@pytest.mark.parametrize(
    ("hash_seed", "before"),
    [
        (1, ""),
        (2, "import hopyard.cli, matplotlib, xml.dom\nstrings = {str(n) for n in range(1000)}\n"),
    ],
)
def test_the_process_does_not_matter(hash_seed: int, before: str) -> None:
    assert hashes_elsewhere(hash_seed, before) == known_hashes()


@pytest.mark.slow
def test_no_policy_depends_on_the_order_of_a_set() -> None:
    first, second = (hashes_elsewhere(seed, show=PRINT_HASHES_OF_POLICIES).split() for seed in (1, 2))
    assert first == second


def test_no_service_changes_a_fact_that_others_read_too() -> None:
    """On the memory bus its readers share it."""
    seen: list[MemoryStack] = []

    async def look(stack: Stack) -> None:
        assert isinstance(stack, MemoryStack)
        seen.append(stack)

    ran = simulate(SMALL, disturb=[look], engine="loop")
    log = seen[0].bus._broker.log
    assert [decode_fact(log.at(seq)[1]) for seq in ran.seqs] == ran.events


def test_another_seed_is_another_run() -> None:
    assert simulate(SMALL, seed=2).result.event_log_hash != simulate(SMALL, seed=1).result.event_log_hash


GOLDEN: Mapping[str, Mapping[str, float]] = {
    "hops": {"makespan_s": 2509.0, "jct_s_mean": 1179.0, "gru": 0.56},
    "sia": {"makespan_s": 2272.0, "jct_s_mean": 1335.0, "gru": 0.65},
    "gavel": {"makespan_s": 2596.0, "jct_s_mean": 1470.0, "gru": 0.58},
    "tiresias": {"makespan_s": 3162.0, "jct_s_mean": 1436.0, "gru": 0.52},
    "fifo": {"makespan_s": 2326.0, "jct_s_mean": 1305.0, "gru": 0.66},
}
"""of `tiny`: what a change of a policy may move a little, and a mistake a lot"""


@pytest.mark.parametrize("policy", sorted(GOLDEN))
def test_the_shipped_scenario_gives_the_known_figures(policy: str) -> None:
    ran = simulate(load_scenario("tiny"), policy=policy, overrides=AS_PUBLISHED)
    assert audit(ran.events, drained=True, seqs=ran.seqs) == []
    for name, value in GOLDEN[policy].items():
        assert ran.result.metrics[name] == pytest.approx(value, rel=0.15), name


def test_the_command_prints_only_the_known_result() -> None:
    command = [sys.executable, "-m", "hopyard.cli", "simulate", "--scenario", "tiny", "--json"]
    ran = subprocess.run(command, check=True, capture_output=True, timeout=300)
    written = msgspec.json.decode(ran.stdout, type=dict[str, object])
    assert set(written) == set(RunResult.__struct_fields__)
    result = msgspec.convert(written, RunResult)
    assert result.jobs == {"submitted": 8, "completed": 8}
