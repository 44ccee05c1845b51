"""A small cluster in which nothing stays as it is, and what its services must agree on all the while.

Nodes are drained and restored, agents and services die, agents are cut off, other programs use GPUs, jobs are
cancelled, and the policy changes, at random moments: also while jobs start, stop, save or are measured. Now
and then, when all services run and have read all facts, an inspector compares what they know.
"""

from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any, NamedTuple

import msgspec

from loadgen.fault_injection import Stack
from loadgen.simulation import Simulated, simulate
from schemas.ids import JobId, NodeId
from schemas.jobs import GpuRange
from schemas.plans import Waiting as Reason
from schemas.scenarios import ArrivingJob, ListedWorkload, ScenarioFile
from services.admission.questions import Cancel, OwnQuestion, SetDrain, SetHold, SetPolicy
from services.monitor.reasons import NO_NODES, STARTING, why
from services.placer.phases import Waiting
from services.placer.state import Placed
from services.placer.state import State as PlacerState
from services.planner.core.state import State as PlannerState
from services.profiler.state import State as ProfilerState
from shared.domain.ledger import Ledger
from shared.domain.ledger.records import JobRecord
from shared.domain.states import JobState
from shared.runtime.bus.contract import Unavailable
from shared.runtime.service import Ports, Service, ServiceFactory
from tests.chaos.faults import agent_of
from tests.chaos.nodes import NodeFaults, faulty_nodes
from tests.simulation.failing_runner import FailureRates
from tests.simulation.storms import NODES, SMALL, XP, Gpus, arriving

JOBS = 10
ACTS = 25
"""of those who disturb the cluster"""
POLICIES = ("hops", "sia", "gavel", "hadar", "hadare", "hare", "hlas-p", "jps", "allox", "srtf", "fifo")
"""one after the other; also of rotas, of copies, of gangs on several types, and of none of these"""
PLACES_ALL = "fifo"
"""the last: others may leave a job waiting for ever, such as one for whose copies no node is large enough"""
SERVICES = ("planner", "placer", "profiler", "monitor")
DEMANDS: list[Gpus] = [1, 2, 4, [1, 2], [1, 2, 4], GpuRange(min=1, max=4, choices=4)]
WORKLOADS = 6
LOOK_EVERY_S = (7.3, 13.1, 31.7)
ASK_AGAIN_S = 2.0
ROUNDING = 1e-6


class Churned(NamedTuple):
    ran: Simulated
    found: list[str]
    """on what the services did not agree, and when"""
    looks: int
    """how often they were compared"""
    reasons: set[str]
    """why jobs waited"""


def churned(seed: int) -> Churned:
    churn = Churn(seed)
    ran = simulate(
        scenario(seed),
        policy=churn.random.choice(POLICIES),
        seed=seed,
        disturb=[churn.disturb, churn.inspect],
        runners=faulty_nodes(
            churn.node_faults, FailureRates(seed=seed, breaks=0.15, within_s=300.0, fails=0.3)
        ),
        wrap=churn.wrap,
    )
    return Churned(ran, churn.found, churn.looks, churn.reasons)


def scenario(seed: int) -> ScenarioFile:
    return msgspec.structs.replace(
        SMALL,
        workload=ListedWorkload(jobs=list(_jobs(Random(f"churn/jobs/{seed}")))),
        settings=SMALL.settings | {"round_s": 120.0, "node_lease_real_s": 20.0, "heartbeat_real_s": 5.0},
    )


def _jobs(random: Random) -> Iterator[ArrivingJob]:
    at_s = 0.0
    for number in range(JOBS):
        types = [XP] if random.random() < 0.2 else None
        one = arriving(at_s, f"job-{number}", random.choice(DEMANDS), random.uniform(60.0, 700.0), types)
        workload = msgspec.structs.replace(one.job.workload, code_version=f"v{random.randrange(WORKLOADS)}")
        job = msgspec.structs.replace(
            one.job,
            workload=workload,
            preemptible=random.random() < 0.85,
            priority=random.choice((0.1, 1.0, 1.0, 10.0)),
            time_limit=random.choice((None, None, None, 200.0)),
            retries=random.choice((0, 3)),
        )
        yield msgspec.structs.replace(one, job=job)
        at_s += random.expovariate(1 / 60.0)


class Churn:
    def __init__(self, seed: int) -> None:
        self.random = Random(f"churn/{seed}")
        self.node_faults = NodeFaults()
        self.found: list[str] = []
        self.looks = 0
        self.reasons: set[str] = set()
        self._cores: dict[str, Any] = {}
        self._away: set[str] = set()
        """agents and services that are dead, cut off, or not long back"""
        self._drained: set[NodeId] = set()
        self._held: set[JobId] = set()
        self._used: set[NodeId] = set()
        """nodes whose GPUs another program uses"""

    def wrap(self, name: str, make: ServiceFactory) -> ServiceFactory:
        """Remember the core of each life of a service."""

        def made(ports: Ports, life: str) -> Service:
            service = make(ports, life)
            self._cores[name] = service.core
            return service

        return made

    # ---- what happens

    async def disturb(self, stack: Stack) -> None:
        for _ in range(ACTS):
            if self.random.random() < 0.5:
                await stack.facts(self.random.randrange(1, 25))
                await stack.steps(self.random.randrange(30))
            else:
                await stack.sleep(self.random.choice((0.5, 3.0, 20.0, 100.0)))
            [act] = self.random.choices(list(ACTIONS), list(ACTIONS.values()))
            await act(self, stack, self.random.choice(NODES))
        for node_id in NODES:
            await self._ask(stack, SetDrain(node_id=node_id, draining=False))
            self.node_faults.runners[node_id].free_again()
        for job_id in sorted(self._held):
            await self._ask(stack, SetHold(job_id=job_id, held=False))
        await self._ask(stack, SetPolicy(policy=PLACES_ALL))

    async def _ask(self, stack: Stack, question: OwnQuestion) -> object:
        while True:
            try:
                return await stack.put_to("admission", question)
            except Unavailable:
                await stack.sleep(ASK_AGAIN_S)

    async def drain_or_restore(self, stack: Stack, node_id: NodeId) -> None:
        self._drained ^= {node_id}
        await self._ask(stack, SetDrain(node_id=node_id, draining=node_id in self._drained))

    async def use_or_free(self, _: Stack, node_id: NodeId) -> None:
        self._used ^= {node_id}
        runner = self.node_faults.runners[node_id]
        if node_id in self._used:
            runner.used_by_others()
        else:
            runner.free_again()

    async def kill_agent(self, stack: Stack, node_id: NodeId) -> None:
        await self._be_away(stack, agent_of(node_id), self.random.choice((0.0, 1.0, 10.0, 60.0)))

    async def cut_agent(self, stack: Stack, node_id: NodeId) -> None:
        name = agent_of(node_id)
        self._away.add(name)
        stack.cut(name)
        await stack.sleep(self.random.choice((1.0, 10.0, 60.0)))
        stack.mend(name)
        await self._be_back(stack, name)

    async def kill_service(self, stack: Stack, _: NodeId) -> None:
        await self._be_away(stack, self.random.choice(SERVICES), self.random.choice((0.0, 1.0, 5.0)))

    async def _be_away(self, stack: Stack, name: str, away_s: float) -> None:
        self._away.add(name)
        await stack.kill(name)
        await stack.sleep(away_s)
        stack.start(name)
        await self._be_back(stack, name)

    async def _be_back(self, stack: Stack, name: str) -> None:
        await stack.sleep(1.0)
        self._away.discard(name)

    async def cancel(self, stack: Stack, _: NodeId) -> None:
        ledger: Ledger = self._cores["monitor"].state.ledger
        unfinished = [record.job_id for record in ledger.jobs.values() if not record.ended]
        if unfinished:
            await self._ask(stack, Cancel(job_id=self.random.choice(unfinished)))

    async def hold_or_release(self, stack: Stack, _: NodeId) -> None:
        ledger: Ledger = self._cores["monitor"].state.ledger
        unfinished = [record.job_id for record in ledger.jobs.values() if not record.ended]
        if unfinished:
            job_id = self.random.choice(unfinished)
            await self._ask(stack, SetHold(job_id=job_id, held=job_id not in self._held))
            self._held ^= {job_id}

    async def change_policy(self, stack: Stack, _: NodeId) -> None:
        await self._ask(stack, SetPolicy(policy=self.random.choice(POLICIES)))

    # ---- what is looked at

    async def inspect(self, stack: Stack) -> None:
        while True:
            await stack.sleep(self.random.choice(LOOK_EVERY_S))
            if not self._away:
                self.looks += 1
                states = [self._cores[name].state for name in SERVICES]
                known = Known(states[0], states[1], states[2], states[3].ledger)
                self.reasons |= {known.why(record)[0] for record in known.unfinished()}
                self.found += [f"{known.ledger.at:.1f}: {said}" for said in disagreements(known)]


Act = Callable[[Churn, Stack, NodeId], Awaitable[None]]

ACTIONS: dict[Act, float] = {
    Churn.drain_or_restore: 25,
    Churn.hold_or_release: 10,
    Churn.kill_agent: 10,
    Churn.cut_agent: 10,
    Churn.use_or_free: 15,
    Churn.kill_service: 15,
    Churn.change_policy: 17,
    Churn.cancel: 5,
}
"""what may happen next, and how likely it is"""


class Known(NamedTuple):
    """What the services know at one moment."""

    planner: PlannerState
    placer: PlacerState
    profiler: ProfilerState
    ledger: Ledger

    def unfinished(self) -> list[JobRecord]:
        return [record for record in self.ledger.jobs.values() if not record.ended]

    def wanted(self, job_id: JobId) -> list[Placed]:
        """The places that the job has or is to have."""
        return [one for one in self.placer.of_job(job_id) if one.wanted and not one.profile]

    def why(self, record: JobRecord) -> tuple[str, str]:
        found = why(self.ledger, record, None, self.ledger.at)
        return found.reason, found.detail


def disagreements(known: Known) -> Iterator[str]:
    for rule in RULES:
        yield from rule(known)


def the_same_jobs_are_unfinished(known: Known) -> Iterator[str]:
    unfinished = {record.job_id for record in known.unfinished()}
    for name, jobs in (("planner", known.planner.jobs.keys()), ("placer", known.placer.jobs.keys())):
        if jobs != unfinished:
            yield f"the {name} has {sorted(jobs ^ unfinished)} besides, or lacks them"


def a_job_is_in_one_state_and_has_done_one_amount(known: Known) -> Iterator[str]:
    for record in known.unfinished():
        planned, placed = known.planner.jobs.get(record.job_id), known.placer.jobs.get(record.job_id)
        if planned is None or placed is None:
            continue
        if planned.status is not record.state:
            yield f"{record.job_id} is {planned.status}, or {record.state}"
        done = {
            round(one.samples_done / max(record.spec.samples, 1.0), 6) for one in (planned, placed, record)
        }
        if len(done) > 1:
            yield f"{record.job_id} has done {done} of its samples"
        if abs(planned.held_s - record.run_s) > ROUNDING * max(record.run_s, 1.0):
            yield f"{record.job_id} held GPUs for {planned.held_s} s, or {record.run_s}"
        trains = any(one.trained for one in known.placer.of_job(record.job_id))
        if trains is not (record.state is JobState.RUNNING):
            yield f"{record.job_id} is {record.state}, and trains: {trains}"


def a_job_has_one_place(known: Known) -> Iterator[str]:
    """A gang that lost a worker has its place in the claims until its other workers have stopped."""
    claims = known.planner.claims
    for record in known.unfinished():
        wanted = [one.placement_id for one in known.wanted(record.job_id)]
        claimed = claims.of_job.get(record.job_id)
        claims_of_it = [] if claimed is None else [claimed]
        planned = known.ledger.planned.get(record.job_id)
        if claimed not in claims.broken and claims_of_it != wanted:
            yield f"{record.job_id} is to be on {wanted}, or {claims_of_it}"
        if claimed != (planned.placement_id if planned is not None else None):
            yield f"{record.job_id} is planned on {claimed}, or {planned}"


def no_gpu_is_held_twice_or_for_nobody(known: Known) -> Iterator[str]:
    placer, planner = known.placer, known.planner
    for node_id, node in placer.nodes.items():
        held = placer.gpus_held(node_id)
        if sum(held.values()) > node.whole.gpus:
            yield f"{node_id} has {node.whole.gpus} GPUs, and {held} hold some"
    there = placer.placements.keys() | {one for stale in placer.stale.values() for one in stale}
    of_monitor = {one for node in known.ledger.nodes.values() for one in node.workers}
    for name, holders in {
        "claims": {*planner.claims.planned, *planner.claims.workers},
        "ledger": of_monitor,
    }.items():
        if gone := holders - there:
            yield f"the {name} still has {sorted(gone)}"
    measured = {one for one, run in known.profiler.runs.items() if not run.failure}
    if gone := measured - placer.placements.keys():
        yield f"the profiler waits for {sorted(gone)}"
    if measured != planner.claims.profiles.keys():
        yield f"to be measured: {sorted(measured)}, or {sorted(planner.claims.profiles)}"
    if known.profiler.on_hold.keys() != planner.on_hold.keys():
        yield f"on hold: {sorted(known.profiler.on_hold)}, or {sorted(planner.on_hold)}"


def what_waits_can_start_once_others_have_stopped(known: Known) -> Iterator[str]:
    placer = known.placer
    for placed in placer.placements.values():
        if isinstance(placed.phase, Waiting) and not placed.profile:
            for node_id in placed.gang.nodes:
                jobs = {
                    one.holder: one.gang.on(node_id)
                    for one in placer.on_node(node_id)
                    if one.wanted and not one.profile
                }
                if sum(jobs.values()) > placer.nodes[node_id].node.gpus:
                    yield f"{placed.placement_id} waits for GPUs of {node_id} that {jobs} have"


def why_is_true(known: Known) -> Iterator[str]:
    for record in known.unfinished():
        reason, detail = known.why(record)
        wanted, running = known.wanted(record.job_id), record.state is JobState.RUNNING
        usable = any(
            node.usable and node.node.gpu_type in (record.spec.gpu_types or (node.node.gpu_type,))
            for node in known.placer.nodes.values()
        )
        measured = [
            run
            for run in known.profiler.runs.values()
            if run.plan.job_id == record.job_id and not run.failure
        ]
        false = (
            (reason == STARTING and not wanted)
            or (wanted and not running and reason not in (STARTING, NO_NODES, Reason.ON_HOLD))
            or (not running and reason != Reason.ON_HOLD and (reason == NO_NODES) is usable)
            or (not running and (reason == Reason.ON_HOLD) is not (record.job_id in known.planner.on_hold))
            or ("is being measured" in detail and not measured)
        )
        if false:
            yield f"{record.job_id}: {reason}, {detail}"
        for holder in why(known.ledger, record, None, known.ledger.at).holders:
            if not known.placer.of_job(holder.job_id):
                yield f"{record.job_id} waits for GPUs of {holder.job_id}, which has none"


RULES: tuple[Callable[[Known], Iterator[str]], ...] = (
    the_same_jobs_are_unfinished,
    a_job_is_in_one_state_and_has_done_one_amount,
    a_job_has_one_place,
    no_gpu_is_held_twice_or_for_nobody,
    what_waits_can_start_once_others_have_stopped,
    why_is_true,
)
