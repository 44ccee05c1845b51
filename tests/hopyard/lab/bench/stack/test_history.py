from hopyard.lab.bench.stack.history import FACTS_PER_JOB, end_s, history, life
from loadgen.scenarios import load_cluster
from schemas.events import JobCompleted
from shared.domain.audit import audit
from shared.domain.cluster import nodes_of

NODES = nodes_of(load_cluster("hops-64"))


def test_a_made_up_history_breaks_no_rule() -> None:
    assert audit(history(NODES, 100), drained=True) == []


def test_a_small_cluster_has_a_history_too() -> None:
    assert audit(history(nodes_of(load_cluster("tiny")), 20), drained=True) == []


def test_a_history_ends_with_the_completion_of_its_last_job() -> None:
    last = history(NODES, 30)[-1]
    assert isinstance(last, JobCompleted)
    assert last.at == end_s(NODES, 30)


def test_every_job_has_the_same_number_of_facts() -> None:
    assert len(list(life(7, NODES))) == FACTS_PER_JOB


def test_no_fact_is_published_twice() -> None:
    ids = [fact.event_id for fact in history(NODES, 50)]
    assert len(ids) == len(set(ids))
