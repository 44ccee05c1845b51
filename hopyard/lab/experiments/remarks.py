"""Remarks on policies that a workload puts out of their range, for readers of a comparison. Pure.

Any policy runs on any scenario. What of a workload it leaves unused follows from its options and the jobs;
what it could not do while it ran, its plans have noted.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from hopyard.lab.runs.cases import Finished
from hopyard.lab.runs.trials import Simulation
from loadgen.scenarios import arrivals, cluster_of
from schemas.ids import GpuType
from schemas.jobs import JobSpec
from schemas.scenarios import ScenarioFile
from services.planner.policies.registry import options_kind
from shared.domain.cluster import gpus_by_type, nodes_of
from shared.domain.demand import job_spec
from shared.domain.policy_names import parted
from shared.domain.states import JobState

RIGID = "rigid_demand"
"""the option of policies that give a job one GPU count"""
CUT_SHORT: Mapping[str, str] = {
    JobState.REJECTED: "were rejected",
    JobState.FAILED: "failed",
}
"""what happened to jobs that ended without being complete, by their state"""
NOTES_SHOWN = 3
"""notes of an arm that are shown, the most frequent first"""


class Workload(msgspec.Struct, frozen=True):
    jobs: int
    several: int
    """jobs that list several GPU counts"""
    wide: int
    """jobs that no GPU type alone has the GPUs for"""


def remarks_of(finished: Sequence[Finished]) -> dict[str, list[str]]:
    """Remarks by arm; arms without any are left out."""
    arms: dict[str, list[Finished]] = {}
    for one in finished:
        arms.setdefault(one.case.arm, []).append(one)
    found = {
        arm: [*_by_refusals(runs), *_by_options(runs), *_by_results(runs), *_by_plans(runs)]
        for arm, runs in arms.items()
    }
    return {arm: said for arm, said in found.items() if said}


def workload_of(scenario: ScenarioFile, seed: int, but: Collection[int] = ()) -> Workload:
    """`but`: numbers of jobs that do not count, in order of arrival, from 1."""
    gpus = gpus_by_type(nodes_of(cluster_of(scenario)))
    jobs = [job_spec(one.job) for number, one in enumerate(arrivals(scenario, seed), 1) if number not in but]
    return Workload(
        jobs=len(jobs),
        several=sum(len(job.demand) > 1 for job in jobs),
        wide=sum(_alone(job, gpus) < min(job.demand) for job in jobs),
    )


def _alone(job: JobSpec, gpus: Mapping[GpuType, int]) -> int:
    """GPUs of the usable type that has most."""
    return max(
        (count for name, count in gpus.items() if not job.gpu_types or name in job.gpu_types), default=0
    )


# ---- what is said


def _by_refusals(runs: Sequence[Finished]) -> Iterator[str]:
    refused = sum(len(one.outcome.result.refused) for one in runs)
    if refused:
        jobs = refused + sum(len(one.outcome.jobs) for one in runs)
        yield f"{refused} of {jobs} jobs were refused; figures are about the others"


def _by_options(runs: Sequence[Finished]) -> Iterator[str]:
    trial, workloads = runs[0].case.trial, [_workload_of(one) for one in runs]
    jobs = sum(one.jobs for one in workloads)
    if not jobs or not isinstance(trial, Simulation):
        return
    several, wide = sum(one.several for one in workloads), sum(one.wide for one in workloads)
    name, chosen = parted(trial.policy)
    defaults = {field.name: field.default for field in msgspec.structs.fields(options_kind(name))}
    if RIGID not in defaults and not several:
        yield f"chooses GPU counts, and each of the {jobs} jobs lists one"
    if RIGID in defaults and several:
        rule = chosen.get(RIGID, defaults[RIGID])
        yield f"gives a job one GPU count (the {rule}); {several} of {jobs} jobs list several"
    if wide:
        yield f"{wide} of {jobs} jobs fit on several GPU types together only"


def _workload_of(one: Finished) -> Workload:
    refused = frozenset(job.number for job in one.outcome.result.refused)
    return workload_of(one.case.trial.scenario, one.case.seed, refused)


def _by_results(runs: Sequence[Finished]) -> Iterator[str]:
    jobs = sum(len(one.outcome.jobs) for one in runs)
    waiting = sum(len(one.outcome.result.waiting) for one in runs)
    if waiting:
        yield f"never places {waiting} of {jobs} jobs; figures are about the others"
    states = Counter(job.state for one in runs for job in one.outcome.jobs)
    for state, happened in CUT_SHORT.items():
        if states[state]:
            yield f"{states[state]} of {jobs} jobs {happened}; figures are about the others"


def _by_plans(runs: Sequence[Finished]) -> Iterator[str]:
    plans = sum(len(one.outcome.plans) for one in runs)
    counts: Counter[str] = Counter()
    for one in runs:
        counts.update({note.text: note.plans for note in one.outcome.result.notes})
    for text, count in counts.most_common(NOTES_SHOWN):
        yield f"{count} of {plans} plans: {text}"
    if len(counts) > NOTES_SHOWN:
        yield f"{len(counts) - NOTES_SHOWN} other notes of its plans, in the event logs"
