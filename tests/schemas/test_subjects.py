import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Event
from schemas.events import FACTS, JobQueued, NodeJoined, NodeLost, PlanPublished, StartOrdered, StopOrdered
from schemas.subjects import ALL_FACTS, FACT_SUBJECTS, Filter, coarser, facts_of, subjects_of

KINDS = st.lists(st.sampled_from(list(FACTS.values())), min_size=1)


def subject(kind: type[Event], entity: str = "n-1") -> str:
    return "hopyard.{}.{}.{}".format(kind.tag().split(".")[0], entity, kind.tag().split(".")[1])


def test_the_stream_holds_facts_about_these_entities() -> None:
    entities = ("job", "round", "profile", "plan", "policy", "placement", "node", "worker", "service")
    assert facts_of(*entities) == FACT_SUBJECTS


def test_subjects_of_kinds_are_sorted_and_each_there_once() -> None:
    assert subjects_of([NodeLost, JobQueued, NodeLost]) == ("hopyard.job.*.queued", "hopyard.node.*.lost")
    assert subjects_of([StartOrdered], "n-1") == ("hopyard.worker.n-1.start-ordered",)


@given(KINDS)
def test_a_filter_passes_the_kinds_it_was_made_of_and_no_others(kinds: list[type[Event]]) -> None:
    passed = {kind for kind in FACTS.values() if Filter(subjects_of(kinds)).passes(subject(kind))}
    assert passed == set(kinds)


@given(KINDS, st.sampled_from(["n-1", "*"]))
def test_coarser_subjects_cover_all_and_are_few(kinds: list[type[Event]], entity: str) -> None:
    fine = subjects_of(kinds, entity)
    coarse = coarser(fine)
    assert len(coarse) <= len({kind.tag().split(".")[0] for kind in kinds})
    assert coarse == (ALL_FACTS,) or all(Filter(coarse).passes(subject(kind)) for kind in kinds)


@pytest.mark.parametrize(
    ("fine", "coarse"),
    [
        (subjects_of([PlanPublished]), ("hopyard.plan.*.published",)),
        (subjects_of([PlanPublished, NodeLost]), (ALL_FACTS,)),
        (facts_of("job"), ("hopyard.job.*.*",)),
        (subjects_of([NodeJoined], "a"), ("hopyard.node.a.joined",)),
        (
            subjects_of([NodeJoined, StartOrdered, StopOrdered], "a"),
            ("hopyard.node.a.joined", "hopyard.worker.a.*"),
        ),
        ((ALL_FACTS, ALL_FACTS), (ALL_FACTS,)),
    ],
)
def test_filters_sent_to_the_server_are_the_coarser_subjects(
    fine: tuple[str, ...], coarse: tuple[str, ...]
) -> None:
    assert coarser(fine) == coarse


def test_a_filter_knows_one_entity_from_another() -> None:
    of_one = Filter(["hopyard.worker.a.*"])
    assert of_one.passes("hopyard.worker.a.started")
    assert not of_one.passes("hopyard.worker.b.started")
