"""Objections to a planned placement: why it cannot start, given what changed since the plan was made."""

from schemas.ids import NodeId
from schemas.plans import Placement
from services.placer.state import State
from shared.domain import gangs, in_turns


def objection(state: State, placement: Placement, made_from: int) -> str:
    """Why the placement can no longer start; empty if it can.

    `made_from`: sequence of the last fact that the maker of the plan knew.
    """
    return (
        _objection_of_job(state, placement)
        or _objection_of_nodes(state, placement)
        or _objection_of_gpus(state, placement, made_from)
    )


def _objection_of_job(state: State, placement: Placement) -> str:
    job = state.jobs.get(placement.job_id)
    if job is None:
        return "the job has ended, or was cancelled"
    if job.ended:
        return "the job's last worker has ended it"
    if job.spec.modes and placement.gang.mode not in job.spec.modes:
        return f"the job runs no {placement.gang.mode} gangs"
    if placement.placement_id in state.ended:
        return "the placement has ended since the plan was made"
    for placed in state.of_job(placement.job_id):
        if placed.wanted and not placed.profile:
            return f"the job is placed already, as {placed.placement_id}"
    return ""


def _objection_of_nodes(state: State, placement: Placement) -> str:
    for node_id in placement.gang.nodes:
        known = state.nodes.get(node_id)
        if known is None or not known.alive:
            return f"node {node_id} is lost"
        if known.leaving:
            return f"node {node_id} is leaving the cluster"
        if known.draining:
            return f"node {node_id} is drained"
        if placement.gang.mode not in known.modes:
            return f"node {node_id} runs no {placement.gang.mode} gangs"
    return ""


def _objection_of_gpus(state: State, placement: Placement, made_from: int) -> str:
    types, used = state.jobs[placement.job_id].spec.gpu_types, gangs.computing(placement.gang).nodes
    for node_id, gpus in ((one.node, one.gpus) for one in placement.gang.members):
        there = state.nodes[node_id].node
        if state.retyped.get(node_id, 0) > made_from:
            return f"node {node_id} came back with other GPUs while the plan was made"
        if types and node_id in used and there.gpu_type not in types:
            return f"node {node_id} has {there.gpu_type} GPUs, which the job may not use"
        if gpus_claimed(state, node_id, placement) > there.gpus:
            return f"node {node_id} has fewer than {gpus} GPUs that no other placement has or waits for"
    return ""


def gpus_claimed(state: State, node_id: NodeId, one_more: Placement) -> int:
    """GPUs on a node that wanted placements have or wait for, with one more placement."""
    holders = state.gpus_wanted(node_id)
    holders[in_turns.holder(one_more.placement_id, one_more.gang)] = one_more.gang.on(node_id)
    return sum(holders.values())
