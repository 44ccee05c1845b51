"""What a job still needs before it is profiled. Pure questions about the state."""

from collections.abc import Mapping

import msgspec

from schemas.ids import Fingerprint, GpuType
from schemas.measurements import TimeModules
from services.profiler.state import State, UnprofiledJob

Modules = Mapping[tuple[Fingerprint, GpuType], TimeModules]
"""time modules by workload and type that are fitted and not yet published"""
NODES_BELIEVED = 2
"""so many nodes have to lack a job's program before it counts as missing on all"""


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """The types a job may use, by what is known of each."""

    usable: dict[GpuType, TimeModules]
    excluded: dict[GpuType, str]
    """types that the job cannot use, with the reason: first those it failed on, then those without a node"""
    failed: bool
    """whether the job was tried on some type and does not run there"""
    wanted: tuple[GpuType, ...]
    """types on which the job still has to be measured, and of which a node is open"""
    pending: bool
    """whether a fit is under way, or a type is waited for"""

    @property
    def settled(self) -> bool:
        return not self.wanted and not self.pending


class Types(msgspec.Struct, frozen=True):
    seen: tuple[GpuType, ...]
    """all that were ever there, in alphabetical order"""
    open: frozenset[GpuType]
    """those of which some node may start something now"""


def types_of(state: State) -> Types:
    nodes = state.nodes.values()
    return Types(
        seen=tuple(sorted({known.node.gpu_type for known in nodes})),
        open=frozenset([known.node.gpu_type for known in nodes if known.usable]),
    )


def allowed_types(job: UnprofiledJob, types: Types) -> tuple[GpuType, ...]:
    """The types that the user named, or all that were ever seen, in alphabetical order."""
    return job.spec.gpu_types or types.seen


def needs_of(job: UnprofiledJob, state: State, fits: Modules, types: Types, patience: int) -> Needs:
    """What is known about `job` on each type.

    A type without an open node is waited for, during `patience` rounds, if the job names it or has no other
    type that it can use; it is excluded after that, or at once where it is not waited for.
    """
    published = state.modules.get(job.fingerprint, {})
    raw = state.raw.get(job.fingerprint, {})
    usable: dict[GpuType, TimeModules] = {}
    excluded: dict[GpuType, str] = {}
    wanted: list[GpuType] = []
    away: list[GpuType] = []
    pending = False
    for gpu_type in allowed_types(job, types):
        modules = published.get(gpu_type) or fits.get((job.fingerprint, gpu_type))
        if modules is not None:
            usable[gpu_type] = modules
        elif gpu_type in raw:
            pending = True
        elif (reason := _exclusion(job, state, gpu_type) or _absence(job, state, gpu_type)) is not None:
            excluded[gpu_type] = reason
        else:
            (wanted if gpu_type in types.open else away).append(gpu_type)
    failed = bool(excluded)
    for gpu_type in away:
        if job.rounds_without_node.get(gpu_type, 0) < patience and (job.spec.gpu_types or not usable):
            pending = True
        excluded[gpu_type] = "no node of this type can take a measurement"
    return Needs(usable=usable, excluded=excluded, failed=failed, wanted=tuple(wanted), pending=pending)


def _absence(job: UnprofiledJob, state: State, gpu_type: GpuType) -> str | None:
    """Why the job cannot be started on a type: too many of its nodes lack the program; None: it may be.

    Nodes are believed when they are `NODES_BELIEVED`, or all that are open, and none measures the workload.
    """
    if not job.absent or any(
        run.fingerprint == job.fingerprint and run.plan.gpu_type == gpu_type and not run.failure
        for run in state.runs.values()
    ):
        return None
    there = {node_id for node_id, known in state.nodes.items() if known.node.gpu_type == gpu_type}
    open_there = {node_id for node_id in there if state.nodes[node_id].usable}
    lacking = there & job.absent.keys() if job.measured else job.absent.keys()
    if len(lacking) < NODES_BELIEVED and not (open_there and open_there <= job.absent.keys()):
        return None
    return f"on {', '.join(sorted(job.absent))}: {next(iter(job.absent.values()))}"


def _exclusion(job: UnprofiledJob, state: State, gpu_type: GpuType) -> str | None:
    """Why the job, or its workload, is excluded from a type."""
    if gpu_type in job.excluded:
        return job.excluded[gpu_type].reason
    return state.unfit.get(job.fingerprint, {}).get(gpu_type)
