"""A store rebuilt from the logged facts and samples knows what the one that learnt it live knew."""

from pathlib import Path

import msgspec
import pytest

from schemas.events import JobProfiled, JobTypeProfiled
from schemas.ids import GpuType, JobId
from schemas.questions import ExportStore
from schemas.samples import ThroughputObserved
from services.estimator.folds import fold
from services.estimator.remake import Remake
from services.estimator.state import State
from services.estimator.store.archive import page
from services.estimator.store.duckdb_store import DuckDbStore
from tests.fact_builders import queued, whole_life
from tests.services.estimator.estimator_builders import (
    modules,
    observed,
    profiled,
    ran,
    submitted,
    workload,
)

HALF_LIFE_S = 5_000.0
EVIDENCE = "SELECT * FROM evidence ORDER BY fingerprint, layer, place, distributed, size"


@pytest.mark.parametrize("counts", [True, False])
def test_a_store_remade_from_the_log_is_the_same(tmp_path: Path, counts: bool) -> None:  # noqa: FBT001
    seen = [observed(f"a{n % 3}", place=f"p1-a{n % 3}", throughput=50.0 + n, at=100.0 * n) for n in range(40)]
    of_two = {"a0": 2, "a1": 2}
    seen += [
        observed(configuration=of_two, place="p2", throughput=150.0 + n, at=5_000.0 + n) for n in range(9)
    ]
    facts = [*whole_life(), *ran(*seen)]
    live = DuckDbStore(str(tmp_path / "live"), HALF_LIFE_S, counts=counts)
    state = State()
    for fact in facts:
        _, execution = fold(state, fact)
        if isinstance(fact, JobProfiled):
            live.keep(state.jobs[fact.job_id].spec.workload, fact.modules)
        if execution is not None:
            live.log([execution])
    for first in range(0, len(seen), 7):  # written as they came
        live.add(seen[first : first + 7])

    useless = [observed("a0", throughput=0.0, at=7.0), observed("a0", seconds=0.0, at=8.0)]
    twice: list[ThroughputObserved] = [*seen, seen[3], *useless]
    made = Remake(tmp_path / "new", HALF_LIFE_S, counts=counts)
    for fact in facts:
        made.learn(fact)
    for sample in twice:
        made.observe(sample)
    made.close()
    assert (made.facts, made.observations) == (len(facts), len(seen))
    new = DuckDbStore(str(tmp_path / "new"), HALF_LIFE_S, counts=counts)
    asked = ExportStore(after=0, limit=1_000)
    assert page(new, asked).lines == page(live, asked).lines
    assert live.executions()
    with live._file("read") as before, new._file("read") as after:
        rows, others = (file.execute(EVIDENCE).fetchall() for file in (before, after))
    assert rows
    assert [row[:5] for row in others] == [row[:5] for row in rows]
    for row, other in zip(rows, others, strict=True):
        assert other[5:] == pytest.approx(row[5:], rel=1e-12)


def test_a_type_that_an_earlier_job_adds_brings_no_earlier_profile_back(tmp_path: Path) -> None:
    """Both jobs are of one workload, and each was measured; then the first was on a further type."""
    a, b, slow = GpuType("A"), GpuType("B"), modules(forward_s=0.9)
    further = JobTypeProfiled(at=9.0, job_id=JobId("j1"), workload=workload(), gpu_type=b, modules=modules())
    made = Remake(tmp_path / "new", HALF_LIFE_S, counts=True)
    for fact in [submitted("j1"), profiled("j1"), queued("j1"), submitted("j2")]:
        made.learn(fact)
    for fact in [msgspec.structs.replace(profiled("j2"), modules={a: slow}), queued("j2"), further]:
        made.learn(fact)
    made.close()
    known = DuckDbStore(str(tmp_path / "new"), HALF_LIFE_S).theory([workload().fingerprint])
    assert [one.modules for one in known.values()] == [{a: slow, b: modules()}]
