"""Wires the planner."""

from schemas.events import PlanPublished, PolicyChosen
from schemas.questions import PLANNER
from schemas.settings import Settings
from schemas.subjects import subjects_of
from services.planner.core.folds import FOLDS
from services.planner.core.planner import Planner
from services.planner.core.tasks import Judge, Look, Prepare, Resolve
from services.planner.core.triggers import CALLS_FOR_NOTHING, TRIGGERS
from services.planner.solver.effort import Effort
from services.planner.work.leadership import begin_to_lead
from services.planner.work.metrics import metrics
from services.planner.work.policy_process import policy_process
from services.planner.work.workers import Workers
from shared.domain.policy_names import parted
from shared.runtime.plugins import POLICIES
from shared.runtime.service import Inbox, Ports, Service


def build(settings: Settings, ports: Ports) -> Service:
    """Raises UnknownPlugin for a policy that is not installed, ValueError for a name that cannot be read.

    No policy's code is run here.
    """
    POLICIES.target(parted(settings.policy).name)
    policies = policy_process(settings, ports.offload)
    workers = Workers(settings, ports, policies)

    async def lead(inbox: Inbox) -> None:
        await begin_to_lead(
            inbox, ports.bus, ports.clock, policy=settings.policy, token=ports.fencing_token()
        )

    async def warm(_: Inbox) -> None:
        await policies.warm()

    async def close() -> None:
        policies.end()

    core = Planner(
        settings,
        effort=effort_of(settings),
        grace_s=ports.clock.cluster_s(settings.round_opening_timeout_real_s),
    )
    return Service(
        name="planner",
        core=core,
        facts=subjects_of({*FOLDS, *TRIGGERS}),
        quiet_facts=CALLS_FOR_NOTHING,
        own_facts=(PlanPublished, PolicyChosen),
        answers=PLANNER,
        workers={
            Look: workers.look,
            Judge: workers.judge,
            Prepare: workers.prepare,
            Resolve: workers.resolve,
        },
        tasks=(lead, warm),
        troubles=core.troubles,
        metrics=lambda: metrics(workers.fallbacks),
        close=close,
    )


def effort_of(settings: Settings) -> Effort:
    """The effort of a solve. If work limits it, nodes of the search are counted and seconds are modelled."""
    modelled = settings.solve_limit == "work"
    return Effort(
        gap=settings.gap,
        budget_s=settings.solve_deadline_real_s,
        node_limit=settings.solve_node_limit if modelled else None,
        modelled=modelled,
        backend=settings.solver,
    )
