"""Where GPU time went: parts that sum to the whole, each shown by a run that has it."""

from math import fsum

import pytest

from hopyard.lab.runs.gpu_time import gpu_time
from hopyard.lab.runs.trials import GpuTime
from loadgen.scenarios import load_scenario
from loadgen.simulation import simulate
from schemas.events import Outcome
from shared.domain.ledger import ledger_of
from shared.domain.metrics.use import span_s
from tests.fact_builders import cancelled, in_queue, joined, refused, start_ordered, worker_stopped
from tests.hopyard.lab.experiment_builders import small


def of(name: str, policy: str, seed: int = 1) -> tuple[GpuTime, float]:
    """And all GPU time from the first submission to the last end."""
    scenario = small() if name == "small" else load_scenario(name)
    events = simulate(scenario, policy=policy, seed=seed).events
    ledger = ledger_of(events)
    found = gpu_time(ledger, events)
    assert found is not None
    first, last = span_s(ledger, ledger.at)
    gpus = sum(known.node.gpus for known in ledger.nodes.values())
    return found, gpus * (last - first)


@pytest.mark.parametrize(
    "policy", ["hops", "sia", "fifo-skipping", "hadare", "tests.simulation.mode_policies:Rotas"]
)
def test_the_parts_sum_to_the_whole(policy: str) -> None:
    found, whole = of("tiny", policy)
    parts = [getattr(found, part) for part in GpuTime.__struct_fields__]
    assert fsum(parts) == pytest.approx(whole, rel=1e-9)
    assert found.useful > 0
    assert found.profiling > 0
    assert min(found.restarts, found.profiling, found.beside_waiting, found.idle, found.slower_types) >= 0


def test_one_type_of_gpu_is_never_the_slower_one() -> None:
    found, _ = of("small", "fifo")
    assert found.slower_types == pytest.approx(0.0, abs=1e-6)
    assert found.restarts == 0


def test_a_queue_that_does_not_skip_leaves_gpus_idle_beside_jobs_that_wait() -> None:
    strict, whole = of("tiny", "fifo")
    skipping, other = of("tiny", "hops")
    assert strict.beside_waiting / whole > skipping.beside_waiting / other


def test_a_job_whose_start_was_refused_waits_again() -> None:
    """A refusal of a placement in which it does not train changes nothing."""
    events = [
        joined(gpus=2),
        *in_queue(),
        start_ordered(at=100.0),
        refused(at=120.0, place="pl-0"),
        worker_stopped(at=150.0, outcome=Outcome.REFUSED),
        refused(at=150.0),
        cancelled(at=400.0),
    ]
    found = gpu_time(ledger_of(events), events)
    assert found is not None
    assert found.gangs == 50.0, "the GPU that it was ordered to have"
    assert found.beside_waiting == 2 * 100.0 + 2 * 250.0
    assert found.idle == 50.0


def test_a_run_without_jobs_has_no_gpu_time() -> None:
    assert gpu_time(ledger_of([]), []) is None
