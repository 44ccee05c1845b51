"""The jobs that keep their GPUs whatever a policy decides, and the GPUs that they leave free. Pure."""

from schemas.ids import NodeId
from services.planner.policies.contract.decision import Choice
from services.planner.policies.contract.view import View
from shared.domain import in_turns


def kept(view: View, *, everything: bool) -> tuple[tuple[Choice, ...], dict[NodeId, int]]:
    """The choices of jobs that keep their place, and the GPUs by node that these leave.

    They are the jobs that may not be moved, or with `everything` all that run. A job whose GPUs are not idle
    any more, since profiling took them or the node drains, keeps nothing.
    """
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
