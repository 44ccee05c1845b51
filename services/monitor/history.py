"""The history that the page shows: who held which GPUs when, when nodes were out of use, the last plans.

Its size is bounded, and so are the ledger's runs and plans. Every change of the timeline gets the next
revision, so a reader that names the last revision it has seen gets only what changed since.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import msgspec

from schemas.base import Event
from schemas.events import (
    JobSubmitted,
    NodeDrained,
    NodeEvent,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    NodeRestored,
    NodeReturned,
    PlanPublished,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import JobId, NodeId, PlacementId
from schemas.overview import Holding, NodeSpell, PlanDetail, PlanSummary
from shared.domain.ledger import Ledger, forget_plans
from shared.domain.ledger.jobs import drop_runs
from shared.domain.ledger.records import JobRecord

HOLDINGS_KEPT = 10_000
SPELLS_KEPT = 2_000
PLANS_KEPT = 50
PLANS_WITH_FIGURES_KEPT = 10_000
"""plans that stay in the ledger, for metrics"""
PLAN_ENTRIES_KEPT = 500
"""jobs left out that are kept of a plan, and as many of its placements"""
FACTS_KEPT = 200
"""newest facts of a job whose sequences are kept, besides its first"""
RUNS_KEPT = 500
"""newest runs of a job that are kept; metrics have sums over those before"""
JOBS_WITH_RUNS_KEPT = 2_000
"""ended jobs whose runs and fact sequences are kept"""

DRAINING, LEAVING, LOST = "draining", "leaving", "lost"
NODE_LOST, AGENT_RESTARTED = "node-lost", "agent-restarted"


class PlanEntry(msgspec.Struct, frozen=True):
    summary: PlanSummary
    detail: PlanDetail


class FactSeqs(msgspec.Struct, kw_only=True):
    seqs: list[int]
    """stream sequences of the job's first fact and of its newest facts"""
    complete: bool = True
    """false: facts between `seqs[0]` and `seqs[1]` were dropped"""


class History(msgspec.Struct, kw_only=True):
    revision: int = 0
    open_holdings: dict[NodeId, dict[PlacementId, Holding]] = {}
    closed_holdings: list[Holding] = []
    """by revision"""
    open_spells: dict[NodeId, dict[str, NodeSpell]] = {}
    """by node and state"""
    closed_spells: list[NodeSpell] = []
    """by revision"""
    complete_from: float | None = None
    """time from which the timeline lacks nothing; None: it lacks nothing"""
    plans: list[PlanEntry] = []
    fact_seqs: dict[JobId, FactSeqs] = {}
    jobs_with_runs: dict[JobId, None] = {}
    """ended jobs, in the order of their ends (a dict for its order; the values mean nothing)"""

    def next_revision(self) -> int:
        self.revision += 1
        return self.revision


def record(history: History, ledger: Ledger, fact: Event) -> None:
    """Enter a fact in the history; the ledger must have folded it before."""
    enter = FOLDS.get(type(fact))
    if enter is not None:
        enter(history, ledger, fact)


def record_seq(history: History, fact: Event, seq: int) -> None:
    """Enter the stream sequence of a fact about a job."""
    job_id = getattr(fact, "job_id", None)
    if job_id is None:
        return
    if isinstance(fact, JobSubmitted):
        history.fact_seqs[job_id] = FactSeqs(seqs=[seq])
    elif job_id in history.fact_seqs:
        known = history.fact_seqs[job_id]
        known.seqs.append(seq)
        if len(known.seqs) > FACTS_KEPT * 1.1:
            del known.seqs[1:-FACTS_KEPT]
            known.complete = False


def changed(history: History, after: int) -> list[Holding | NodeSpell]:
    """What has changed since revision `after`, in the order of the changes."""
    found: list[Holding | NodeSpell] = [
        each for kept in (history.closed_holdings, history.closed_spells) for each in _newer(kept, after)
    ]
    going_on = (history.open_holdings.values(), history.open_spells.values())
    found += [each for nodes in going_on for here in nodes for each in here.values() if each.revision > after]
    return sorted(found, key=lambda each: each.revision)


def _newer(kept: Sequence[Any], after: int) -> Iterable[Any]:
    return takewhile(lambda each: each.revision > after, reversed(kept))


def forget_runs(history: History, jobs: Mapping[JobId, JobRecord], ended: JobId) -> None:
    """Note that a job has ended.

    Drop the runs and fact sequences of the jobs that ended first, beyond the limit. Sums over the runs stay.
    """
    history.jobs_with_runs[ended] = None
    while len(history.jobs_with_runs) > JOBS_WITH_RUNS_KEPT:
        oldest = next(iter(history.jobs_with_runs))
        del history.jobs_with_runs[oldest]
        history.fact_seqs.pop(oldest, None)
        if oldest in jobs:
            drop_runs(jobs[oldest], keep=0)


# ---- workers


def _started(history: History, ledger: Ledger, fact: WorkerStarted) -> None:
    here = history.open_holdings.setdefault(fact.node_id, {})
    here[fact.placement_id] = Holding(
        revision=history.next_revision(),
        node_id=fact.node_id,
        job_id=fact.job_id,
        placement_id=fact.placement_id,
        gpu_indices=fact.gpu_indices,
        measures=fact.placement_id in ledger.measuring,
        since=fact.at,
    )


def _stopped(history: History, _: Ledger, fact: WorkerStopped) -> None:
    _close_holding(history, fact.node_id, fact.placement_id, fact.at, fact.outcome.value)


def _close_holding(history: History, node_id: NodeId, placement_id: PlacementId, at: float, end: str) -> None:
    here = history.open_holdings.get(node_id, {})
    holding = here.pop(placement_id, None)
    if holding is None:
        return
    until = max(at, holding.since)
    history.closed_holdings.append(
        msgspec.structs.replace(holding, revision=history.next_revision(), until=until, end=end)
    )
    _trim(history, history.closed_holdings, HOLDINGS_KEPT)


def _close_holdings(
    history: History, node_id: NodeId, at: float, end: str, but: Sequence[PlacementId] = ()
) -> None:
    for placement_id in [each for each in history.open_holdings.get(node_id, ()) if each not in but]:
        _close_holding(history, node_id, placement_id, at, end)


def _trim(history: History, kept: list[Any], most: int) -> None:
    """Drop the oldest entries once there are a tenth too many, so that most calls drop none."""
    if len(kept) > most * 1.1:
        last = max(each.until for each in kept[:-most])
        history.complete_from = max(last, history.complete_from or last)
        del kept[:-most]


# ---- nodes


def _joined(history: History, ledger: Ledger, fact: NodeJoined) -> None:
    _close_holdings(history, fact.node_id, fact.at, AGENT_RESTARTED, but=fact.workers)
    _node_changed(history, ledger, fact)


def _lost(history: History, ledger: Ledger, fact: NodeLost) -> None:
    _close_holdings(history, fact.node_id, fact.at, NODE_LOST)
    _node_changed(history, ledger, fact)


def _node_changed(history: History, ledger: Ledger, fact: NodeEvent) -> None:
    """Open and close spells by the node after the fact, so that the timeline agrees with the nodes' list."""
    known = ledger.nodes.get(fact.node_id)
    if known is None:
        return
    for state, holds in ((DRAINING, known.draining), (LEAVING, known.leaving), (LOST, not known.alive)):
        (_open_spell if holds else _close_spell)(history, fact.node_id, state, fact.at)


def _open_spell(history: History, node_id: NodeId, state: str, at: float) -> None:
    here = history.open_spells.setdefault(node_id, {})
    if state not in here:
        here[state] = NodeSpell(revision=history.next_revision(), node_id=node_id, state=state, since=at)


def _close_spell(history: History, node_id: NodeId, state: str, at: float) -> None:
    spell = history.open_spells.get(node_id, {}).pop(state, None)
    if spell is not None:
        until = max(at, spell.since)
        history.closed_spells.append(
            msgspec.structs.replace(spell, revision=history.next_revision(), until=until)
        )
        _trim(history, history.closed_spells, SPELLS_KEPT)


# ---- plans


def _planned(history: History, ledger: Ledger, fact: PlanPublished) -> None:
    forget_plans(ledger, keep=PLANS_WITH_FIGURES_KEPT)
    view = ledger.plans[-1].view
    if view.plan_id != fact.plan_id:
        return  # the plan is of an earlier leader
    reasons = Counter([left.reason for left in fact.left_out])
    left_out = {str(reason): count for reason, count in reasons.items()}
    detail = PlanDetail(
        plan_id=fact.plan_id,
        placements=fact.placements[:PLAN_ENTRIES_KEPT],
        left_out=fact.left_out[:PLAN_ENTRIES_KEPT],
    )
    history.plans.append(PlanEntry(PlanSummary(plan=view, left_out=left_out), detail))
    if len(history.plans) > PLANS_KEPT:
        del history.plans[0]


FOLDS: Mapping[type[Event], Callable[[History, Ledger, Any], None]] = {
    WorkerStarted: _started,
    WorkerStopped: _stopped,
    NodeJoined: _joined,
    NodeLost: _lost,
    NodeReturned: _node_changed,
    NodeDrained: _node_changed,
    NodeRestored: _node_changed,
    NodeRemoved: _node_changed,
    PlanPublished: _planned,
}
