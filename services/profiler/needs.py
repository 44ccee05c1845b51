"""What a job still needs before it is profiled. Pure functions of the state."""

from collections.abc import Mapping

import msgspec

from schemas.ids import Fingerprint, GpuType
from schemas.measurements import TimeModules
from services.profiler.state import KnownJob, State
from shared.domain import gangs

Modules = Mapping[tuple[Fingerprint, GpuType], TimeModules]
"""time modules by workload and type that are fitted and not yet published"""
NODES_BELIEVED = 2
"""number of nodes that must lack a job's program before it counts as missing on all nodes of the type"""


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU types that a job may use, sorted by what is known of them."""

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
    """types of all nodes, lost ones too, in alphabetical order"""
    open: frozenset[GpuType]
    """types of the nodes on which something may start now"""
    alive: frozenset[GpuType]
    """types of the nodes that are there, drained or not"""


def types_of(state: State) -> Types:
    nodes = state.nodes.values()
    return Types(
        seen=tuple(sorted({known.node.gpu_type for known in nodes if not known.removed})),
        open=frozenset([known.node.gpu_type for known in nodes if known.usable]),
        alive=frozenset([known.node.gpu_type for known in nodes if known.alive]),
    )


def allowed_types(job: KnownJob, types: Types) -> tuple[GpuType, ...]:
    """The types that the user named, or all that there are, in alphabetical order."""
    return job.spec.gpu_types or types.seen


def needs_of(job: KnownJob, state: State, fits: Modules, types: Types, patience: int) -> Needs:
    """What is known about `job` on each type.

    If a type has no open node, the job waits for it during `patience` rounds, provided that the job names the
    type or can use no other. After that, or at once if the job does not wait, it goes without the type; but a
    job that can use no other type waits for as long as a node of the type is there and drained.
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
        if job.rounds_without_node.get(gpu_type, 0) < patience:
            pending |= bool(job.spec.gpu_types) or not usable
        else:
            pending |= gpu_type in types.alive and not usable
        excluded[gpu_type] = "no node of this type can take a measurement"
    return Needs(usable=usable, excluded=excluded, failed=failed, wanted=tuple(wanted), pending=pending)


def lacks_open_type(job: KnownJob, state: State, types: Types) -> bool:
    """Whether a node is open of a type on which a profiled job could be measured, and was not."""
    allowed = types.open.intersection(job.spec.gpu_types) if job.spec.gpu_types else types.open
    return any(_exclusion(job, state, gpu_type) is None for gpu_type in allowed - job.types)


def can_be_measured(job: KnownJob, state: State) -> bool:
    """Whether a measurement of the job may run beside its training.

    It may if the job is not profiled yet, so that it does not train; or if its script attaches, since it then
    writes no checkpoint while it is measured. Copies are merged of such scripts only. Any other script may
    write files that the training one uses.
    """
    published = state.modules.get(job.fingerprint, {})
    return not job.types or all(gangs.merges_copies(modules.modes) for modules in published.values())


def _absence(job: KnownJob, state: State, gpu_type: GpuType) -> str | None:
    """Why the job cannot be started on a type: its program is missing there. None: perhaps it can.

    It counts as missing if enough nodes lack it, and none of the type is measuring the workload. Enough are
    all open nodes of the type, or `NODES_BELIEVED`: of this type if the job was measured anywhere, else of
    any type.
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


def _exclusion(job: KnownJob, state: State, gpu_type: GpuType) -> str | None:
    """Why the job, or its workload, is excluded from a type."""
    if gpu_type in job.excluded:
        return job.excluded[gpu_type].reason
    return state.unfit.get(job.fingerprint, {}).get(gpu_type)
