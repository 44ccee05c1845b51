"""Jobs that another policy has put in rotas. HLAS itself gives every GPU to one job. Pure."""

from collections.abc import Mapping

import msgspec

from schemas.ids import JobId
from services.planner.policies.contract.decision import Choice
from services.planner.policies.contract.view import Present, View
from shared.domain import gangs, in_turns


def without_rotas(view: View) -> tuple[View, tuple[Choice, ...]]:
    """The view without rotas, and the choices of the jobs of rotas that stay.

    A rota stays if one of its jobs may not be moved; its jobs and GPUs are not in the view. A job of any
    other rota is in the view, without a place.
    """
    turning = {job.job_id: job.present for job in view.jobs if job.present and gangs.rota(job.present.gang)}
    if not turning:
        return view, ()
    fixed = {gangs.rota(turning[job.job_id].gang) for job in view.jobs if job.stays and job.job_id in turning}
    aside = {job_id: present for job_id, present in turning.items() if gangs.rota(present.gang) in fixed}
    held = in_turns.held((job_id, present.gang) for job_id, present in aside.items())
    nodes = tuple(
        msgspec.structs.replace(node, idle=node.idle - held.get(node.node_id, 0)) for node in view.nodes
    )
    jobs = tuple(
        msgspec.structs.replace(job, present=None) if job.job_id in turning else job
        for job in view.jobs
        if job.job_id not in aside
    )
    return msgspec.structs.replace(view, nodes=nodes, jobs=jobs), _choices(aside)


def _choices(aside: Mapping[JobId, Present]) -> tuple[Choice, ...]:
    return tuple(
        Choice(
            job_id=job_id,
            gang=present.gang,
            throughput=present.throughput,
            layer=present.layer,
            share=present.share,
        )
        for job_id, present in aside.items()
    )
