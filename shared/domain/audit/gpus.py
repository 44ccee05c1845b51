"""Rules about GPUs and nodes: one owner each, gangs whole, plans within what is there and what is wanted."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from schemas.base import Event
from schemas.events import (
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobPreempted,
    JobProfiled,
    JobStarted,
    NodeJoined,
    NodeLost,
    PlacementRefused,
    PlanPublished,
    StartOrdered,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import GpuType, JobId, NodeId, PlacementId
from schemas.placement import Gang
from schemas.plans import Placement, PlanKind
from shared.domain import gangs, in_turns
from shared.domain.audit.log import Log, Violation, broken


class Planned(NamedTuple):
    placement: Placement
    seq: int
    """of the plan in the stream"""
    token: int


Standing = dict[PlacementId, Planned]


def gpus_have_one_owner(log: Log) -> Iterator[Violation]:
    """From WorkerStarted to WorkerStopped, or to a new life of the agent that does not list the worker.

    A rota owns its GPUs as one, and whoever was ordered to take turns in it has them.
    A lost node's workers keep their GPUs: the node may come back with them, and then they are stopped
    before anything new starts there.
    """
    workers: dict[NodeId, dict[PlacementId, tuple[int, ...]]] = {}
    holders: dict[PlacementId, str] = {}
    for _, fact in log.facts:
        match fact:
            case StartOrdered():
                holders[fact.placement_id] = in_turns.holder(fact.placement_id, fact.gang)
            case WorkerStarted():
                yield from _claim(log, workers.setdefault(fact.node_id, {}), fact, holders)
            case WorkerStopped():
                workers.get(fact.node_id, {}).pop(fact.placement_id, None)
            case NodeJoined():
                there = workers.get(fact.node_id, {})
                workers[fact.node_id] = {key: gpus for key, gpus in there.items() if key in fact.workers}
            case _:
                pass


def _claim(
    log: Log,
    there: dict[PlacementId, tuple[int, ...]],
    fact: WorkerStarted,
    holders: Mapping[PlacementId, str],
) -> Iterator[Violation]:
    """`there`: the GPUs of the node's workers; `holders`: of placements that were ordered to start."""
    node, own = log.nodes.get(fact.node_id), holders.get(fact.placement_id, fact.placement_id)
    for gpu in fact.gpu_indices:
        owners = (key for key, gpus in there.items() if gpu in gpus)
        owner = next((key for key in owners if holders.get(key, key) != own), None)
        if owner is not None:
            detail = f"GPU {gpu} of {fact.node_id} is {owner}'s and {fact.placement_id} takes it"
            yield broken("gpu-two-owners", fact, detail)
        if node is None or not 0 <= gpu < node.gpus:
            yield broken("gpu-unknown", fact, f"{fact.node_id} has no GPU {gpu}")
    there[fact.placement_id] = fact.gpu_indices


def gangs_are_whole(log: Log) -> Iterator[Violation]:
    """A job starts when every node of its gang has a worker with all its GPUs."""
    up: dict[tuple[PlacementId, NodeId], int] = {}
    for _, fact in log.facts:
        if isinstance(fact, WorkerStarted):
            up[fact.placement_id, fact.node_id] = len(set(fact.gpu_indices))
        if isinstance(fact, JobStarted):
            for one in fact.gang.members:
                found = up.get((fact.placement_id, one.node), 0)
                if found != one.gpus:
                    yield broken("gang-broken", fact, f"{found} of {one.gpus} GPUs are up on {one.node}")


def plans_fit_the_nodes(log: Log) -> Iterator[Violation]:
    """No plan, together with what still stands of its round's earlier plans, exceeds a node.

    An earlier placement stands until anything ends it, or might: so the rule reports too little rather than
    too much. What the previous leader planned while this plan was made does not count: the maker of this
    plan could not know it, and the placer refuses one of the two.
    """
    standing: Standing = {}
    token = 0
    for seq, fact in log.facts:
        if not isinstance(fact, PlanPublished):
            _take_away(standing, fact)
        elif fact.token >= token:  # an older one is refused as a whole
            token = fact.token
            if fact.kind is PlanKind.FIRST:
                standing.clear()
            standing |= {
                placement.placement_id: Planned(placement, seq, token) for placement in fact.placements
            }
            known = (one for one in standing.values() if one.token == token or one.seq <= fact.made_from)
            yield from _overbooked(log, fact, (one.placement for one in known))


def _take_away(standing: Standing, fact: Event) -> None:
    match fact:
        case JobPreempted() | PlacementRefused() | WorkerStopped():
            standing.pop(fact.placement_id, None)
        case JobCompleted() | JobFailed() | JobCancelled():
            for key in [key for key, one in standing.items() if one.placement.job_id == fact.job_id]:
                del standing[key]
        case NodeLost() | NodeJoined():
            for key in [key for key, one in standing.items() if one.placement.gang.on(fact.node_id)]:
                del standing[key]
        case _:
            pass


def _overbooked(log: Log, plan: PlanPublished, standing: Iterable[Placement]) -> Iterator[Violation]:
    wanted = in_turns.held((placement.placement_id, placement.gang) for placement in standing)
    for node_id, gpus in wanted.items():
        there = log.nodes[node_id].gpus if node_id in log.nodes else 0
        if gpus > there:
            yield broken("node-overbooked", plan, f"{plan.plan_id}: {gpus} of {there} GPUs on {node_id}")


def rotas_agree(log: Log) -> Iterator[Violation]:
    """Who takes turns with others does so on the same GPUs as they, at a place of its own."""
    for plan in _plans(log):
        if wrong := in_turns.discord(placement.gang for placement in plan.placements):
            yield broken("rota-discord", plan, f"{plan.plan_id}: {wrong}")


def plans_place_a_job_once(log: Log) -> Iterator[Violation]:
    for plan in _plans(log):
        seen: set[JobId] = set()
        for placement in plan.placements:
            if placement.job_id in seen:
                yield broken("placed-twice", plan, f"{plan.plan_id} has two places for {placement.job_id}")
            seen.add(placement.job_id)


def stale_plans_are_not_followed(log: Log) -> Iterator[Violation]:
    """Nothing starts by a plan whose fencing token is older than one before it in the stream.

    That such a plan is published is no mistake: its maker did not know yet. Following it would be.
    """
    newest = 0
    fresh: set[PlacementId] = set()
    stale: dict[PlacementId, int] = {}
    for _, fact in log.facts:
        if isinstance(fact, PlanPublished):
            keys = {placement.placement_id for placement in fact.placements}
            if fact.token < newest:
                stale |= dict.fromkeys(keys - fresh, fact.token)
            else:
                newest = fact.token
                fresh |= keys
        if isinstance(fact, StartOrdered) and fact.placement_id in stale.keys() - fresh:
            detail = f"{fact.placement_id} is of token {stale[fact.placement_id]}, {newest} came before"
            yield broken("stale-plan-followed", fact, detail)


def placements_meet_the_demand(log: Log) -> Iterator[Violation]:
    """GPU counts are from the job's R, GPU types are those it may use and can run on."""
    unusable: dict[JobId, set[GpuType]] = {}
    for _, fact in log.facts:
        match fact:
            case JobProfiled():
                unusable[fact.job_id] = set(fact.unusable)
            case PlanPublished(placements=placements):
                for placement in placements:
                    out = unusable.get(placement.job_id, set())
                    yield from _misfits(log, fact, placement.job_id, placement.gang, out)
            case JobStarted():
                out = unusable.get(fact.job_id, set())
                yield from _misfits(log, fact, fact.job_id, fact.gang, out)
            case _:
                pass


def _misfits(log: Log, fact: Event, job_id: JobId, gang: Gang, out: set[GpuType]) -> Iterator[Violation]:
    spec = log.specs.get(job_id)
    if spec is None:
        yield broken("job-unknown", fact, f"nobody submitted {job_id}")
        return
    batch_size = spec.workload.batch_size
    if wrong := gangs.shares_misfit(gang, batch_size):
        yield broken("shares-whole", fact, f"{job_id} gets {wrong}")
    elif wrong := gangs.misfit(gang, spec.demand, batch_size):
        yield broken("gpu-count", fact, f"{job_id} gets {wrong}")
    used = gangs.computing(gang).nodes
    for node_id in gang.nodes:
        node = log.nodes.get(node_id)
        if node is None:
            yield broken("node-unknown", fact, f"{job_id} is placed on {node_id}")
        elif node_id not in used:
            continue
        elif node.gpu_type in out or (spec.gpu_types and node.gpu_type not in spec.gpu_types):
            yield broken("gpu-type", fact, f"{job_id} cannot use {node.gpu_type} of {node_id}")


def _plans(log: Log) -> Iterator[PlanPublished]:
    return (fact for _, fact in log.facts if isinstance(fact, PlanPublished))
