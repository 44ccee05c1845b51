"""The decision when there is no estimate at all: what runs is kept, nothing starts. Pure."""

from schemas.plans import PlanKind, Waiting
from services.planner.policies.contract.decision import Choice, Decision, Left
from services.planner.policies.contract.view import View
from shared.domain import in_turns


def keep_running(view: View, note: str) -> Decision:
    """What to do without any estimate: a first plan keeps what runs, a fragment plan starts nothing."""
    free = {node.node_id: node.idle for node in view.nodes}
    choices = []
    running = sorted(view.jobs, key=lambda job: not job.stays) if view.kind == PlanKind.FIRST else ()
    rotas: set[str] = set()
    for job in running:
        present = job.present
        if present is None:
            continue
        holder = in_turns.holder(job.job_id, present.gang)
        wanted = {} if holder in rotas else present.gang.configuration
        if any(gpus > free.get(node, 0) for node, gpus in wanted.items()):
            continue
        for node, gpus in wanted.items():
            free[node] -= gpus
        rotas.add(holder)
        choices.append(
            Choice(
                job_id=job.job_id,
                gang=present.gang,
                throughput=present.throughput,
                layer=present.layer,
                share=present.share,
            )
        )
    assert min(free.values(), default=0) >= 0, "what runs has room"
    placed = {choice.job_id for choice in choices}
    left = (job.job_id for job in view.jobs if job.job_id not in placed)
    return Decision(
        choices=tuple(choices),
        left=tuple(Left(job_id=job_id, reason=Waiting.NO_ESTIMATE) for job_id in left),
        memory=view.memory,
        notes=(note,),
    )
