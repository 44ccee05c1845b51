"""The jobs that keep their GPUs whatever is decided, and the GPUs that are left. Pure."""

from schemas.ids import NodeId
from services.planner.policies.contract.decision import Choice
from services.planner.policies.contract.view import View
from shared.domain import in_turns


def kept(view: View, *, everything: bool) -> tuple[tuple[Choice, ...], dict[NodeId, int]]:
    """The jobs that may not be moved, or all that run; and the GPUs that they leave."""
    free = {node.node_id: node.idle for node in view.nodes}
    found: list[Choice] = []
    holders: set[str] = set()
    for job in sorted(view.jobs, key=lambda job: not job.stays):
        present = job.present
        if present is None or not (job.stays or everything):
            continue
        holder = in_turns.holder(job.job_id, present.gang)
        wanted = {} if holder in holders else present.gang.configuration
        if any(gpus > free.get(node, 0) for node, gpus in wanted.items()):
            continue
        free |= {node: free[node] - gpus for node, gpus in wanted.items()}
        holders.add(holder)
        found.append(
            Choice(
                job_id=job.job_id,
                gang=present.gang,
                throughput=present.throughput,
                layer=present.layer,
                share=present.share,
            )
        )
    return tuple(found), free
