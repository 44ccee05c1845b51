"""The audit: what must hold in every log of facts, whatever the policy and whatever failed.

| rule                | broken when                                                                        |
|---------------------|------------------------------------------------------------------------------------|
| state-table         | a fact about a job that the table of states forbids, and that no crossing explains |
| started-twice       | JobStarted of a running job                                                        |
| start-after-end     | a start that follows a fact from after the job's end                               |
| start-unplanned     | StartOrdered with a placement id that no plan and no round has                     |
| work-undone         | JobCompleted with fewer samples than the job has                                   |
| work-overcounted    | a run that ends with more samples than its workers, or copies, reported            |
| job-lost            | a round's first plan forgets a queued job; with `drained`, a job that has not ended|
| place-taken         | a plan that ends the run of a job that is not preemptible                          |
| gpu-two-owners      | WorkerStarted on a GPU that another worker has, not of the same rota               |
| gpu-unknown         | WorkerStarted on a GPU that the node does not have                                 |
| gang-broken         | JobStarted without all workers of its gang                                         |
| node-overbooked     | plans of one round that want more GPUs than a node has                             |
| rota-discord        | gangs of one rota on unlike GPUs, or two of them at the same place                 |
| placed-twice        | a plan with two places for one job                                                 |
| stale-plan-followed | StartOrdered by a plan with an older fencing token than one before it              |
| gpu-count, gpu-type | a gang outside the job's demand, or on a type that it may not or cannot use        |
| shares-whole        | samples of an iteration that are together no batch for each GPU                    |
| job-unknown, node-unknown | a placement of a job that was not submitted, or on a node that never joined   |
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import msgspec

from schemas.base import Event
from schemas.events import PlanPublished
from shared.domain.audit import gpus, jobs
from shared.domain.audit.log import Log, Violation
from shared.domain.recent_ids import RecentIds

Rule = Callable[[Log, int, Event], Iterator[Violation]]

KEPT = 20_000
"""number of facts (to ignore repetitions), ended jobs and plans that are remembered, as in the services"""
FOUND_AT_MOST = 1_000

RULES: tuple[Rule, ...] = (
    jobs.states_follow_the_table,
    jobs.no_job_starts_twice,
    jobs.no_job_starts_after_its_end,
    jobs.nothing_starts_unplanned,
    jobs.completed_jobs_did_their_work,
    jobs.samples_are_counted_once,
    jobs.no_job_is_forgotten,
    jobs.places_are_kept,
    gpus.gpus_have_one_owner,
    gpus.gangs_are_whole,
    gpus.plans_fit_the_nodes,
    gpus.rotas_agree,
    gpus.plans_place_a_job_once,
    gpus.stale_plans_are_not_followed,
    gpus.placements_meet_the_demand,
)
__all__ = ["Audit", "LogHash", "Violation", "audit", "event_log_hash"]


class Audit:
    """Audits a log, which it is given fact by fact from the first on. It keeps no facts."""

    def __init__(self, kept: int = KEPT) -> None:
        self._log = Log(kept)
        self._known = RecentIds(kept)
        self._found: list[list[Violation]] = [[] for _ in RULES]
        self._room = FOUND_AT_MOST

    def take(self, seq: int, fact: Event) -> None:
        """Check a fact by all rules. `seq`: its sequence in the stream."""
        if not self._known.add(fact.event_id):
            return
        for rule, found in zip(RULES, self._found, strict=True):
            for violation in rule(self._log, seq, fact):
                if self._room:
                    found.append(violation)
                    self._room -= 1
        self._log.take(seq, fact)

    def found(self, *, drained: bool = False) -> list[Violation]:
        """The result of `audit` for the facts taken so far."""
        left = list(jobs.every_job_ended(self._log)) if drained else []
        return [*chain.from_iterable(self._found), *left]


def audit(
    events: Iterable[Event], *, drained: bool = False, seqs: Iterable[int] | None = None
) -> list[Violation]:
    """The first thousand violations in a log, by rule in the order of `RULES`; empty: there is none.

    `events` is the whole stream from its first fact, in its order. `drained`: nothing was left to do, so
    every submitted job must have ended. `seqs`: the facts' sequences, if the stream holds other messages too
    (repetitions, unreadable ones): plans name the sequence that they were made from.
    """
    done = Audit()
    for seq, event in enumerate(events, start=1) if seqs is None else zip(seqs, events, strict=True):
        done.take(seq, event)
    return done.found(drained=drained)


def event_log_hash(events: Iterable[Event]) -> str:
    """SHA-256 (hex) over the encoded facts, in order."""
    log_hash = LogHash()
    for event in events:
        log_hash.add(event)
    return log_hash.hex()


class LogHash:
    """Hashes a log fact by fact.

    A plan's `solve_s` is left out: it is the only number that depends on the machine, not on the run.
    """

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._encoder = msgspec.msgpack.Encoder()

    def add(self, event: Event) -> None:
        hashed = msgspec.structs.replace(event, solve_s=0.0) if isinstance(event, PlanPublished) else event
        data = self._encoder.encode(hashed)
        self._digest.update(len(data).to_bytes(8, "little"))
        self._digest.update(data)

    def hex(self) -> str:
        return self._digest.hexdigest()
