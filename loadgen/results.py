"""The result of a run, live or simulated, from its event log."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from loadgen.provenance import made_by
from loadgen.standstill import end_before_standstill
from schemas.base import Event
from schemas.events import JobEvent, PolicyChosen
from schemas.results import CutJob, JobResult, PlanNote, RefusedJob, RunResult
from schemas.scenarios import Arrival, PolicyChange
from schemas.settings import Settings
from shared.domain.audit import LogHash
from shared.domain.demand import job_spec
from shared.domain.ledger import Ledger, fold
from shared.domain.ledger.records import JobRecord
from shared.domain.metrics import jct_s, job_counts, latency_ratio, plan_figures, runs_of, summary
from shared.domain.metrics.fairness import ftf_rho_by_job
from shared.domain.metrics.merging import merging
from shared.domain.states import JobState
from shared.domain.sums import plain_sum

LOCATION_PREFIXES = ("api_", "clock_origin", "cluster", "dump_", "log_", "nats_", "node", "store", "web_")
"""prefixes of settings that say only where a run happened; results leave them out"""
NOTES_AT_MOST = 100
"""different notes that a result keeps"""


def run_result(
    events: Sequence[Event],
    *,
    scenario: str,
    policy: str,
    seed: int,
    speed: float | None,
    settings: Settings,
    wall_s: float,
    changes: Sequence[PolicyChange] = (),
    refused: Sequence[RefusedJob] = (),
    cut: Sequence[CutJob] = (),
) -> RunResult:
    """The result of a whole log.

    `policy`: the one that it began with, before the `changes`; `speed`: cluster seconds per second, None in
    simulation; `wall_s`: what the run took, seconds.
    """
    tally = Tally()
    for event in events:
        tally.add(event)
    return tally.result(
        scenario=scenario,
        policy=policy,
        seed=seed,
        speed=speed,
        settings=settings,
        wall_s=wall_s,
        changes=changes,
        refused=refused,
        cut=cut,
    )


class Tally:
    """Builds the result of a run fact by fact. It keeps jobs and plans, but no facts."""

    def __init__(self) -> None:
        self._ledger = Ledger(explains=False)
        self._hash = LogHash()
        self._events = 0
        self._last_s = 0.0
        """time of the last fact about a job"""
        self._chosen: list[PolicyChosen] = []

    def add(self, event: Event) -> None:
        fold(self._ledger, event)
        self._hash.add(event)
        self._events += 1
        if isinstance(event, JobEvent):
            self._last_s = event.at
        elif isinstance(event, PolicyChosen):
            self._chosen.append(event)

    def result(
        self,
        *,
        scenario: str,
        policy: str,
        seed: int,
        speed: float | None,
        settings: Settings,
        wall_s: float,
        changes: Sequence[PolicyChange] = (),
        refused: Sequence[RefusedJob] = (),
        cut: Sequence[CutJob] = (),
    ) -> RunResult:
        """As `run_result`."""
        ledger = self._ledger
        end_before_standstill(ledger, self._last_s, settings.round_s)
        return RunResult(
            scenario=scenario,
            policy=in_turn(policy, changes, self._chosen),
            seed=seed,
            speed=speed,
            round_s=settings.round_s,
            jobs=job_counts(ledger),
            metrics=summary(ledger, raqlr_window_s=settings.raqlr_window_s, round_s=settings.round_s),
            plans=plan_figures(ledger),
            event_log_hash=self._hash.hex(),
            events=self._events,
            wall_s=wall_s,
            settings=chosen(settings),
            made_by=made_by(),
            job_results=job_results(ledger),
            refused=tuple(refused),
            cut=tuple(cut),
            notes=_notes(ledger),
        )


def _notes(ledger: Ledger) -> tuple[PlanNote, ...]:
    counts = Counter(note for plan in ledger.plans for note in plan.view.notes)
    return tuple(PlanNote(text=text, plans=count) for text, count in counts.most_common(NOTES_AT_MOST))


def cut_jobs(arrivals: Sequence[Arrival]) -> tuple[CutJob, ...]:
    numbered = ((number, one, job_spec(one.job)) for number, one in enumerate(arrivals, 1) if one.traced_gpus)
    return tuple(
        CutJob(number=number, name=spec.name, traced_gpus=one.traced_gpus, gpus=max(spec.demand))
        for number, one, spec in numbered
        if one.traced_gpus is not None
    )


def in_turn(policy: str, changes: Sequence[PolicyChange], chosen: Sequence[PolicyChosen]) -> str:
    """The policies of a run in their order, as text: `hops, jps from 600 s, sia from 900 s (not reached)`."""
    ordered = sorted(changes, key=lambda change: change.at_s)
    return ", ".join([policy, *(_change(change, chosen) for change in ordered)])


def _change(change: PolicyChange, chosen: Sequence[PolicyChosen]) -> str:
    made = any(fact.policy == change.policy and fact.at >= change.at_s for fact in chosen)
    return f"{change.policy} from {change.at_s:g} s" + ("" if made else " (not reached)")


def job_results(ledger: Ledger) -> tuple[JobResult, ...]:
    records = list(ledger.jobs.values())
    rhos = ftf_rho_by_job(ledger, records)
    return tuple(_job_result(ledger, record, rhos.get(record.job_id)) for record in records)


def _job_result(ledger: Ledger, record: JobRecord, rho: float | None) -> JobResult:
    held_s = ((run.gpus, (ledger.at if run.ended_at is None else run.ended_at)) for run in record.runs)
    gpu_s = plain_sum(
        gpus * (until - run.started_at) for (gpus, until), run in zip(held_s, record.runs, strict=True)
    )
    nodes = dict.fromkeys(member.node for run in record.runs for member in run.gang.members)
    copies = merging(runs_of([record]))
    return JobResult(
        job_id=record.job_id,
        name=record.spec.name,
        model=record.spec.workload.model,
        dataset=record.spec.workload.dataset,
        state=record.state.value,
        submitted_at=record.submitted_at,
        started_at=record.started_at,
        ended_at=record.ended_at,
        wait_s=record.wait_s(ledger.at),
        age_s=record.age_s,
        jct_s=jct_s(record) if record.state is JobState.COMPLETED else None,
        latency_ratio=latency_ratio(record, ledger.at),
        ftf_rho=rho,
        gpu_s=gpu_s,
        restarts=record.restarts,
        lost_gpu_s=record.lost_gpu_s,
        placements=len(record.runs),
        priority=record.spec.priority,
        nodes=tuple(nodes),
        merges=copies.merges,
        merge_steps_mean=copies.steps_mean,
        merge_steps_max=copies.steps_max,
        copy_share_max=copies.share_max,
    )


def chosen(settings: Settings) -> dict[str, str | float | bool | None]:
    """The settings that differ from their defaults, without addresses and secrets."""
    values, defaults = msgspec.structs.asdict(settings), msgspec.structs.asdict(Settings())
    return {
        name: value
        for name, value in values.items()
        if value != defaults[name] and not name.startswith(LOCATION_PREFIXES)
    }
