"""Samples of copies, counted together: in any order and with repetitions."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import NodeId
from schemas.placement import Forked, Gang
from shared.domain import gangs
from shared.domain.tally import Tally

A, B, D = NodeId("a"), NodeId("b"), NodeId("d")
NODES = [A, B, D]
BASE, SAMPLES = 1000.0, 2320.0
"""the paper's third case: quotas 600, 240 and 480 of the samples left"""

COUNTS = st.lists(st.tuples(st.sampled_from(NODES), st.floats(BASE, SAMPLES)), min_size=1, max_size=20)


def copies() -> Tally:
    return Tally.of(Gang.of(dict.fromkeys(NODES, 1), Forked(shares=(0.5, 0.2, 0.3))), BASE, 0.0)


def after(counts: list[tuple[NodeId, float]]) -> Tally:
    tally = copies()
    for node, samples in counts:
        tally.count(node, samples, 1.0)
    return tally


def test_a_lost_copy_costs_its_own_steps_only() -> None:
    tally = after([(A, 1600.0), (D, 1300.0)])
    tally.end(B, saved=False)
    assert tally.merged(SAMPLES) == 1900.0
    assert after([(A, 1600.0), (B, 1100.0), (D, 1300.0)]).merged(SAMPLES) == 2000.0


def test_the_reported_progress_of_a_copy_counts_until_it_is_lost() -> None:
    tally, heard = after([(A, 1200.0), (B, 1100.0)]), {B: 1150.0}
    assert tally.merged(SAMPLES, heard) == 1350.0
    tally.end(B, saved=False)
    assert tally.merged(SAMPLES, heard) == 1300.0


def test_copies_that_began_unlike_have_the_least_in_common() -> None:
    tally = copies()
    tally.restore(B, 900.0)
    tally.count(A, 1100.0, 1.0)
    tally.count(B, 950.0, 1.0)
    assert tally.merged(SAMPLES) == 900.0 + 100.0 + 50.0


def test_a_lone_copy_counts_no_more_than_the_job() -> None:
    """A quota is of whole batches."""
    gang = Gang.of({A: 1}, Forked(shares=(1.0,)))
    [quota] = gangs.quotas(gang, SAMPLES - BASE, 256).values()
    assert BASE + quota > SAMPLES
    tally = Tally.of(gang, BASE, 0.0)
    tally.count(A, BASE + quota, 1.0)
    assert tally.merged(SAMPLES) == SAMPLES


def test_a_gang_counts_the_samples_of_its_leader() -> None:
    tally = Tally.of(Gang.of({A: 2, B: 2}), BASE, 0.0)
    tally.count(B, 9999.0, 1.0)
    tally.count(A, 1500.0, 1.0)
    assert tally.merged(SAMPLES) == 1500.0


@given(COUNTS, st.randoms())
def test_a_tally_does_not_depend_on_order_and_repetition(
    counts: list[tuple[NodeId, float]], random: Random
) -> None:
    again = [*counts, *counts]
    random.shuffle(again)
    assert after(again).merged(SAMPLES) == after(counts).merged(SAMPLES)


@given(COUNTS)
def test_a_tally_never_falls_and_never_exceeds_the_job(counts: list[tuple[NodeId, float]]) -> None:
    tally, before = copies(), BASE
    for node, samples in counts:
        tally.count(node, samples, 1.0)
        now = tally.merged(SAMPLES)
        assert before <= now <= SAMPLES
        before = now


@given(
    st.integers(1, 3000).map(float),
    st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3),
    st.integers(1, 64),
)
def test_all_shares_done_are_the_job_done(left: float, weights: list[float], batch: int) -> None:
    """Every sample is counted once: what quotas have beyond the job is less than a batch."""
    whole = sum(weights)
    gang = Gang.of(dict.fromkeys(NODES, 1), Forked(shares=tuple(one / whole for one in weights)))
    quotas = gangs.quotas(gang, left, batch)
    tally = Tally.of(gang, BASE, 0.0)
    for node, quota in quotas.items():
        assert not tally.complete(BASE + left) or sum(quotas.values()) >= left
        tally.count(node, BASE + quota, 1.0)
    assert tally.complete(BASE + left)
    assert left <= sum(quotas.values()) < left + batch
