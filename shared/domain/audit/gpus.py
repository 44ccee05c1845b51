"""Rules about GPUs and nodes: a GPU has one owner, a gang is whole, a plan fits the nodes and the demand.

A rule is given the log as it was before a fact, the fact's sequence, and the fact.
"""

from collections.abc import Iterator, Sequence

from schemas.base import Event
from schemas.events import JobStarted, PlanPublished, StartOrdered, WorkerStarted
from schemas.ids import JobId
from schemas.placement import Gang
from shared.domain import gangs, in_turns
from shared.domain.audit.log import Log, Planned, Violation, broken


def gpus_have_one_owner(log: Log, _: int, fact: Event) -> Iterator[Violation]:
    """No worker starts on a GPU that another worker owns.

    A worker owns its GPUs from WorkerStarted to WorkerStopped, or to a new life of the agent that does not
    list the worker. One that it lists keeps its GPUs, also where the node has fewer now. A rota is one owner
    of its GPUs, for every placement that was ordered to take turns in it. A lost node's workers keep their
    GPUs: the node may come back with them, and then they are stopped before anything new starts there.
    """
    if not isinstance(fact, WorkerStarted):
        return
    node, there = log.nodes.get(fact.node_id), log.workers.get(fact.node_id, {})
    own = log.place(fact.job_id, fact.placement_id).holder or fact.placement_id
    for gpu in fact.gpu_indices:
        owner = next((key for key, held in there.items() if gpu in held.gpus and held.holder != own), None)
        if owner is not None:
            detail = f"GPU {gpu} of {fact.node_id} is {owner}'s and {fact.placement_id} takes it"
            yield broken("gpu-two-owners", fact, detail)
        if node is None or not (gpu < node.gpus or fact.placement_id in log.adopted[fact.node_id]):
            yield broken("gpu-unknown", fact, f"{fact.node_id} has no GPU {gpu}")


def gangs_are_whole(log: Log, _: int, fact: Event) -> Iterator[Violation]:
    """A job starts when every node of its gang has a worker with all its GPUs.

    All are up at the same time, when the last one comes up. One that ends after that may cross the start.
    """
    if not isinstance(fact, JobStarted) or log.job(fact.job_id).ended:
        return
    up = log.place(fact.job_id, fact.placement_id).up
    for one in fact.gang.members:
        found = up.get(one.node, 0)
        if found != one.gpus:
            yield broken("gang-broken", fact, f"{found} of {one.gpus} GPUs are up on {one.node}")


def plans_fit_the_nodes(log: Log, seq: int, fact: Event) -> Iterator[Violation]:
    """No plan, together with what still stands of its round's earlier plans, exceeds a node.

    An earlier placement stands until a fact ends it, or might: so the rule reports too little rather than
    too much. A plan that the previous leader made at the same time does not count: the maker of this plan
    could not know it, and the placer refuses one of the two. Neither does a node that came back with other
    GPUs while this plan, or an earlier one with a placement there, was made: the placer refuses that one.
    """
    if isinstance(fact, PlanPublished) and fact.token >= log.token:
        standing = log.stand(seq, fact).values()
        known = [one for one in standing if one.token == fact.token or one.seq <= fact.made_from]
        yield from _overbooked(log, fact, known)


def _overbooked(log: Log, plan: PlanPublished, standing: Sequence[Planned]) -> Iterator[Violation]:
    wanted = in_turns.held((one.placement.placement_id, one.placement.gang) for one in standing)
    for node_id, gpus in wanted.items():
        there = log.nodes[node_id].gpus if node_id in log.nodes else 0
        if gpus > there and all(
            log.is_known(node_id, one) for one in standing if node_id in one.placement.gang.nodes
        ):
            yield broken("node-overbooked", plan, f"{plan.plan_id}: {gpus} of {there} GPUs on {node_id}")


def rotas_agree(_: Log, __: int, fact: Event) -> Iterator[Violation]:
    """The gangs of a rota have the same GPUs, and each gang has its own place in the cycle."""
    if isinstance(fact, PlanPublished) and (
        wrong := in_turns.discord(placement.gang for placement in fact.placements)
    ):
        yield broken("rota-discord", fact, f"{fact.plan_id}: {wrong}")


def plans_place_a_job_once(_: Log, __: int, fact: Event) -> Iterator[Violation]:
    if not isinstance(fact, PlanPublished):
        return
    seen: set[JobId] = set()
    for placement in fact.placements:
        if placement.job_id in seen:
            yield broken("placed-twice", fact, f"{fact.plan_id} has two places for {placement.job_id}")
        seen.add(placement.job_id)


def stale_plans_are_not_followed(log: Log, _: int, fact: Event) -> Iterator[Violation]:
    """No start follows a plan whose fencing token is older than that of an earlier plan in the stream.

    To publish such a plan is no mistake, since its maker did not know of the newer token; to follow it is.
    """
    if not isinstance(fact, StartOrdered):
        return
    place = log.place(fact.job_id, fact.placement_id)
    if place.stale is not None and not place.fresh:
        detail = f"{fact.placement_id} is of token {place.stale}, {log.token} came before"
        yield broken("stale-plan-followed", fact, detail)


def placements_meet_the_demand(log: Log, _: int, fact: Event) -> Iterator[Violation]:
    """A gang's GPU count is in the job's R, and its types are those that the job may use and can run on.

    A type that a plan's maker could not know counts once the job starts on it.
    """
    match fact:
        case PlanPublished(placements=placements):
            for placement in placements:
                yield from _misfits(log, fact, placement.job_id, placement.gang)
        case JobStarted():
            yield from _misfits(log, fact, fact.job_id, fact.gang)
        case _:
            pass


def _misfits(log: Log, fact: Event, job_id: JobId, gang: Gang) -> Iterator[Violation]:
    job = log.job(job_id)
    if job.ended:
        return
    if job.spec is None:
        yield broken("job-unknown", fact, f"{job_id} was never submitted")
        return
    spec, batch_size = job.spec, job.spec.workload.batch_size
    if wrong := gangs.shares_misfit(gang, batch_size):
        yield broken("shares-whole", fact, f"{job_id} gets {wrong}")
    elif wrong := gangs.misfit(gang, spec.demand, batch_size):
        yield broken("gpu-count", fact, f"{job_id} gets {wrong}")
    used = gangs.computing(gang).nodes
    for node_id in gang.nodes:
        node = log.nodes.get(node_id)
        if node is None:
            yield broken("node-unknown", fact, f"{job_id} is placed on {node_id}")
        elif node_id not in used or (isinstance(fact, PlanPublished) and not log.is_known(node_id, fact)):
            continue
        elif node.gpu_type in job.unusable or (spec.gpu_types and node.gpu_type not in spec.gpu_types):
            yield broken("gpu-type", fact, f"{job_id} cannot use {node.gpu_type} of {node_id}")
