"""Puts the planner together by hand."""

from schemas.settings import Settings
from schemas.subjects import facts_of
from services.planner.aside import Aside
from services.planner.core import Planner
from services.planner.desk import Desk, build_runner
from services.planner.gauges import gauges
from services.planner.lease import Lease
from services.planner.registry import Registry
from services.planner.tasks import Prepare, Resolve
from services.planner.view import Effort
from shared.runtime.service import Inbox, Ports, Service

FACTS = ("job", "round", "profile", "plan", "policy", "placement", "node", "worker")


def build(settings: Settings, ports: Ports) -> Service:
    """Raises UnknownPolicy."""
    registry = Registry(settings)
    registry.find(settings.policy)
    runner = build_runner(settings, ports)
    desk = Desk(settings, ports, runner)
    lease = Lease(settings, ports.bus, ports.clock)

    async def warm(_: Inbox) -> None:
        if isinstance(runner, Aside):
            await runner.warm()

    async def close() -> None:
        await lease.release()
        if isinstance(runner, Aside):
            runner.end()

    return Service(
        name="planner",
        core=Planner(
            settings,
            find=registry.find,
            effort=effort_of(settings, modelled=ports.simulated),
            grace_s=ports.clock.cluster_s(settings.opening_grace_real_s),
        ),
        facts=facts_of(*FACTS),
        workers={Prepare: desk.prepare, Resolve: desk.resolve},
        tasks=(lease.keep, warm),
        gauges=lambda: gauges(desk.spared),
        close=close,
    )


def effort_of(settings: Settings, *, modelled: bool) -> Effort:
    """In simulation branch-and-bound nodes limit a solve, and seconds are reckoned from its work."""
    return Effort(
        gap=settings.gap,
        budget_s=settings.solve_deadline_real_s,
        node_limit=settings.solve_node_limit if modelled else None,
        modelled=modelled,
        backend=settings.solver,
    )
