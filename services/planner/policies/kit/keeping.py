"""Which jobs have their GPUs whatever is decided, and what GPUs that leaves. Pure."""

from schemas.ids import NodeId
from schemas.placement import Gang
from services.planner.policies.contract.decision import Choice
from services.planner.policies.contract.view import View


def kept(view: View, *, everything: bool) -> tuple[tuple[Choice, ...], dict[NodeId, int]]:
    """The jobs that may not be moved, or all that run; and the GPUs that they leave."""
    free = {node.node_id: node.idle for node in view.nodes}
    found = []
    for job in sorted(view.jobs, key=lambda job: not job.stays):
        present = job.present
        if present is None or not (job.stays or everything) or not _fits(present.gang, free):
            continue
        for one in present.gang.members:
            free[one.node] -= one.gpus
        found.append(
            Choice(job_id=job.job_id, gang=present.gang, throughput=present.throughput, layer=present.layer)
        )
    return tuple(found), free


def _fits(gang: Gang, free: dict[NodeId, int]) -> bool:
    return all(free.get(one.node, 0) >= one.gpus for one in gang.members)
