"""The sixteen faults that break schedulers, each an action upon a fact of the stream.

An action waits for a fact that calls for it, lets some turns of services pass, does its harm and, after a
while, undoes it. It returns whether it did any: a service that is being killed is not killed twice.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from loadgen.fault_injection import Stack
from loadgen.submissions import OnAnswer
from schemas.base import Event
from schemas.events import (
    JobProfiled,
    JobQueued,
    JobStarted,
    JobSubmitted,
    PlacementRefused,
    PlanPublished,
    ProfilingAdded,
    ProfilingPlanned,
    StartOrdered,
    StopOrdered,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import NodeId, PlacementId, PlanId
from schemas.plans import PlanKind
from schemas.views import NodeDrain, Submitted
from services.admission.questions import OwnQuestion, SetDrain, SetPolicy, Submit
from shared.runtime.bus.contract import Unavailable
from tests.chaos.clocks import Clocks
from tests.chaos.nodes import NodeFaults, draws
from tests.chaos.solvers import ERRING
from tests.simulation.storms import arriving

FLAPS = 3
BURST = 40
"""jobs that a user submits at once, more than may be unfinished"""
OLD_FACTS = 12
ASK_AGAIN_S = 5.0


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One injection of a fault, of a case."""

    fault: int
    skip: int
    """facts that call for it and that it lets pass"""
    steps: int
    """turns of services between the fact and the injection"""
    pick: float
    """in [0, 1): whom, which, how"""
    away_s: float
    """until it is undone"""


class Scene(msgspec.Struct):
    """Where actions inject faults, and what they have seen there."""

    stack: Stack
    node_faults: NodeFaults
    clocks: Clocks
    policy: str
    """to go back to"""
    heard: OnAnswer
    """hears what admission answers"""
    occupied: set[str] = set()
    """services that an action has to itself for now"""
    facts: list[Event] = []
    ordered: set[PlacementId] = set()
    plan: PlanPublished | None = None
    """the newest by its fencing token"""
    serial: int = 0

    def catch_up(self) -> None:
        for fact in self.stack.stored(len(self.facts)):
            self.facts.append(fact)
            if isinstance(fact, StartOrdered):
                self.ordered.add(fact.placement_id)
            if isinstance(fact, PlanPublished) and (self.plan is None or fact.token >= self.plan.token):
                self.plan = fact

    def free(self, *names: str) -> list[str]:
        """Those that are up, and into which no action injects a fault at the moment."""
        return [name for name in names or self.stack.names if name not in self.occupied and self._is_up(name)]

    def _is_up(self, name: str) -> bool:
        try:
            return self.stack.is_up(name)
        except Unavailable:
            return False

    def one_of(self, action: Action, *names: str) -> str | None:
        found = self.free(*names)
        return found[int(action.pick * len(found))] if found else None

    async def ask(self, question: OwnQuestion) -> object:
        """Until admission answers."""
        while True:
            try:
                return await self.stack.put_to("admission", question)
            except Unavailable:
                await self.stack.sleep(ASK_AGAIN_S)


Inject = Callable[[Scene, Action, Event], Awaitable[bool]]


class Fault(NamedTuple):
    words: str
    when: Callable[[Event], bool]
    """whether a fact calls for it"""
    inject: Inject


def agent_of(node_id: NodeId) -> str:
    return f"agent-{node_id}"


# ---- the parts of an injection


async def killed(scene: Scene, name: str | None, away_s: float) -> bool:
    if name is None:
        return False
    scene.occupied.add(name)
    await scene.stack.kill(name)
    await scene.stack.sleep(away_s)
    scene.stack.start(name)
    scene.occupied.discard(name)
    return True


async def parted(scene: Scene, names: list[str], away_s: float) -> bool:
    scene.occupied.update(names)
    for name in names:
        scene.stack.cut(name)
    await scene.stack.sleep(away_s)
    for name in names:
        scene.stack.mend(name)
    scene.occupied.difference_update(names)
    return bool(names)


async def stalled(scene: Scene, name: str | None, away_s: float) -> bool:
    if name is None:
        return False
    scene.occupied.add(name)
    scene.stack.stall(name)
    await scene.stack.sleep(away_s)
    scene.stack.go_on(name)
    scene.occupied.discard(name)
    return True


# ---- the sixteen


async def scheduler_dies(scene: Scene, action: Action, fact: Event) -> bool:
    """1: a plan is out, and none of its orders."""
    assert isinstance(fact, PlanPublished)
    scene.catch_up()
    undone = {one.placement_id for one in fact.placements} - scene.ordered
    return bool(undone) and await killed(scene, scene.one_of(action, "placer", "planner"), action.away_s)


async def slow_start(scene: Scene, action: Action, fact: Event) -> bool:
    """2: processes come up late, or not in time."""
    assert isinstance(fact, PlanPublished)
    nodes = [node for one in fact.placements for node in one.gang.nodes]
    node_id, before = nodes[int(action.pick * len(nodes))], scene.node_faults.slow_starts
    scene.node_faults.slow_s[node_id] = 30.0 if action.pick < 0.5 else 90.0
    await scene.stack.sleep(max(action.away_s, 20.0))
    scene.node_faults.slow_s.pop(node_id, None)
    return scene.node_faults.slow_starts > before


async def gpu_vanishes(scene: Scene, action: Action, fact: Event) -> bool:
    """3: under a worker. The agent's next life finds it again, and an operator lets the node back in."""
    assert isinstance(fact, JobStarted)
    node_id = fact.gang.nodes[int(action.pick * len(fact.gang.nodes))]
    name = agent_of(node_id)
    if name not in scene.free(name) or not scene.node_faults.runners[node_id].lose_gpu(action.pick):
        return False
    scene.occupied.add(name)
    await scene.stack.sleep(action.away_s + 1.0)
    await killed(scene, name, 1.0)
    while not isinstance(await scene.ask(SetDrain(node_id=node_id, draining=False)), NodeDrain):
        await scene.stack.sleep(ASK_AGAIN_S)
    return True


async def two_on_one_gpu(scene: Scene, action: Action, fact: Event) -> bool:
    """4: a leader of before plans a job onto GPUs that are taken, as late as its word may come."""
    assert isinstance(fact, JobStarted)
    scene.catch_up()
    planned = [
        (plan, one)
        for plan in reversed(scene.facts)
        if isinstance(plan, PlanPublished)
        for one in plan.placements
        if one.placement_id == fact.placement_id
    ]
    if not planned or scene.plan is None or not scene.plan.token:
        return False
    scene.serial += 1
    plan, placement = planned[0]
    again = msgspec.structs.replace(placement, placement_id=PlacementId(f"stale-{scene.serial}"))
    stale = msgspec.structs.replace(
        plan,
        plan_id=PlanId(f"stale-{scene.serial}"),
        kind=PlanKind.FRAGMENT,
        token=scene.plan.token - 1,
        placements=(again,),
    )
    scene.stack.store(stale)
    await scene.stack.sleep(max(action.away_s, 5.0))
    scene.catch_up()
    return again.placement_id not in scene.ordered


async def node_refuses(scene: Scene, action: Action, fact: Event) -> bool:
    """5: its GPUs are in use by others when the order comes."""
    assert isinstance(fact, PlanPublished)
    scene.catch_up()
    coming = [one for one in fact.placements if one.placement_id not in scene.ordered]
    if not coming:
        return False
    gang = max(coming, key=lambda one: len(one.gang.nodes)).gang
    node_id = gang.nodes[int(action.pick * len(gang.nodes))]
    if agent_of(node_id) not in scene.free(agent_of(node_id)):
        return False
    seen = len(scene.facts)
    scene.node_faults.runners[node_id].used_by_others()
    await scene.stack.sleep(max(action.away_s, 20.0))
    scene.node_faults.runners[node_id].free_again()
    scene.catch_up()
    return any(
        isinstance(one, PlacementRefused) or (isinstance(one, WorkerStopped) and one.outcome == "refused")
        for one in scene.facts[seen:]
    )


async def agent_restarts(scene: Scene, action: Action, fact: Event) -> bool:
    """6: with workers on its node."""
    assert isinstance(fact, WorkerStarted)
    return await killed(scene, scene.one_of(action, agent_of(fact.node_id)), min(action.away_s, 5.0))


async def idle_loop(scene: Scene, action: Action, fact: Event) -> bool:
    """7: alive, its lease renewed, its heart beating, and it does nothing."""
    del fact
    return await stalled(scene, scene.one_of(action), action.away_s)


async def worker_ignores_stop(scene: Scene, action: Action, fact: Event) -> bool:
    """8: it does not stop, and is killed in the end."""
    del action
    assert isinstance(fact, StopOrdered)
    before = scene.node_faults.ignored_stops
    scene.node_faults.ignoring_stop.add(fact.placement_id)
    await scene.stack.sleep(10.0)
    return scene.node_faults.ignored_stops > before


TO_WAKE: dict[type[Event], tuple[str, ...]] = {
    JobSubmitted: ("profiler",),
    JobProfiled: ("estimator",),
    JobQueued: ("planner",),
    WorkerStopped: ("placer", "planner", "monitor"),
}


async def not_woken(scene: Scene, action: Action, fact: Event) -> bool:
    """9: who should be woken by the fact is dead, parted or idle."""
    name = scene.one_of(action, *TO_WAKE[type(fact)])
    ways = (killed, stalled)
    if name is None:
        return False
    if action.steps % 3 == 0:
        return await parted(scene, [name], action.away_s)
    return await ways[action.steps % 3 - 1](scene, name, action.away_s)


async def quota(scene: Scene, action: Action, fact: Event) -> bool:
    """10: elastic jobs, more than may be unfinished; each may grow to its demand and no further."""
    del fact
    refused = 0
    for number in range(BURST):
        scene.serial += 1
        job = arriving(0.0, "burst", [1, 2, 4], 60.0 + 200.0 * action.pick).job
        answer = await scene.ask(Submit(job=job, key=f"burst/{scene.serial}"))
        scene.heard(answer)
        refused += not isinstance(answer, Submitted)
        if refused or number >= BURST * action.pick:
            break
    return refused > 0


async def flapping(scene: Scene, action: Action, fact: Event) -> bool:
    """11: a node that goes and comes."""
    del fact
    name = scene.one_of(action, *(name for name in scene.stack.names if name.startswith("agent-")))
    for _ in range(FLAPS if name else 0):
        assert name is not None
        if name in scene.free(name):
            await parted(scene, [name], 45.0 * (0.5 + action.pick))
        await scene.stack.sleep(5.0)
    return name is not None


async def kept_reservation(scene: Scene, action: Action, fact: Event) -> bool:
    """12: GPUs are set aside for a measurement, and who should make it, or hear of it, is gone."""
    assert isinstance(fact, ProfilingPlanned | ProfilingAdded)
    run = fact.runs[int(action.pick * 7919) % len(fact.runs)]
    return await killed(scene, scene.one_of(action, agent_of(run.node_id), "profiler"), action.away_s)


async def disorder(scene: Scene, action: Action, fact: Event) -> bool:
    """13: old facts again, in another order."""
    del fact
    scene.catch_up()
    random = draws(int(action.pick * 1e9), "disorder")
    for old in random.sample(scene.facts, min(OLD_FACTS, len(scene.facts))):
        scene.stack.store(old)
    return True


async def drifting_order(scene: Scene, action: Action, fact: Event) -> bool:
    """14: of those who are to stop one hears it late, or who ordered it dies between two stops."""
    assert isinstance(fact, StopOrdered)
    if action.pick < 0.5:
        return await killed(scene, scene.one_of(action, "placer"), action.away_s)
    return await parted(scene, scene.free(agent_of(fact.node_id)), action.away_s)


async def bad_solver(scene: Scene, action: Action, fact: Event) -> bool:
    """15: slow, wrong, gone."""
    del fact
    seen = len(scene.facts)
    await scene.ask(SetPolicy(policy=ERRING[int(action.pick * len(ERRING))]))
    await scene.stack.sleep(max(action.away_s, 60.0))
    await scene.ask(SetPolicy(policy=scene.policy))
    scene.catch_up()
    plans = [one for one in scene.facts[seen:] if isinstance(one, PlanPublished)]
    return any(one.notes or one.solve_s for one in plans)


async def partition(scene: Scene, action: Action, fact: Event) -> bool:
    """16: some are parted from the others, or one comes back with a clock two minutes off."""
    del fact
    free = scene.free()
    if action.steps % 2:
        name = scene.one_of(action)
        if name is None:
            return False
        scene.clocks.off_s[name] = 120.0 if action.pick < 0.5 else -120.0
        await killed(scene, name, 1.0)
        await scene.stack.sleep(max(action.away_s, 30.0))
        scene.clocks.off_s.pop(name, None)
        while name not in scene.free(name):  # a life with a wrong clock would go on to the end of the case
            await scene.stack.sleep(1.0)
        return await killed(scene, name, 1.0)
    side = draws(int(action.pick * 1e9), "partition").sample(free, len(free) // 2)
    return await parted(scene, side, action.away_s)


def a_start(fact: Event) -> bool:
    return isinstance(fact, JobStarted)


def a_plan_that_places(fact: Event) -> bool:
    return isinstance(fact, PlanPublished) and bool(fact.placements)


def a_stop(fact: Event) -> bool:
    return isinstance(fact, StopOrdered)


def a_measurement(fact: Event) -> bool:
    return isinstance(fact, ProfilingPlanned | ProfilingAdded) and bool(fact.runs)


def anything(fact: Event) -> bool:
    return isinstance(fact, JobStarted | WorkerStopped | PlanPublished)


FAULTS: dict[int, Fault] = {
    1: Fault("the scheduler dies between decision and launch", a_plan_that_places, scheduler_dies),
    2: Fault("slow start", a_plan_that_places, slow_start),
    3: Fault("a GPU vanishes", a_start, gpu_vanishes),
    4: Fault("two placements on one GPU", a_start, two_on_one_gpu),
    5: Fault("one node of a gang refuses", a_plan_that_places, node_refuses),
    6: Fault("an agent restarts", lambda fact: isinstance(fact, WorkerStarted), agent_restarts),
    7: Fault("a loop alive but idle", anything, idle_loop),
    8: Fault("a preempted worker never returns", a_stop, worker_ignores_stop),
    9: Fault("a waiting job not woken", lambda fact: type(fact) in TO_WAKE, not_woken),
    10: Fault("quota on growth", anything, quota),
    11: Fault("a flapping node", anything, flapping),
    12: Fault("a reservation never released", a_measurement, kept_reservation),
    13: Fault("duplicates and disorder", anything, disorder),
    14: Fault("order of preemption drifts", a_stop, drifting_order),
    15: Fault("a solver slow, wrong, gone", anything, bad_solver),
    16: Fault("clocks and partitions", anything, partition),
}
