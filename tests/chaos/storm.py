"""A random case of faults on the simulated stack; what it breaks; the shortest that still breaks it."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from loadgen.fault_injection import Stack
from loadgen.simulation import Engine, Simulated, simulate
from loadgen.stack import WrapFactory, unwrapped
from schemas.base import Event
from schemas.events import JobCompleted, JobSubmitted
from schemas.ids import JobId
from schemas.scenarios import ArrivingJob, ListedWorkload, ScenarioFile
from schemas.views import Submitted
from shared.domain.audit import audit
from tests.chaos.clocks import Clocks
from tests.chaos.faults import FAULTS, Action, Scene
from tests.chaos.nodes import NodeFaults, draws, faulty_nodes
from tests.chaos.solvers import ERRING
from tests.simulation.failing_runner import FailureRates
from tests.simulation.storms import FAULTS as BUS_FAULTS
from tests.simulation.storms import SMALL, XP, Gpus, arriving

AT_A_TIME = 3
"""faults injected at a time"""
ROUNDS = 8
"""how often a case has each fault"""
JOBS = 30
DEMANDS: list[Gpus] = [1, 2, 4, [1, 2], [1, 2, 4]]
WORKLOADS = 12
"""that jobs are of, each to be measured before its first"""
OPEN_MAX = 24
"""unfinished jobs, at most"""
PATIENCE = 60
"""facts that an action waits for one of its kind"""
FACTS_MAX = 20_000
"""of a case; one has about two thousand"""
COLLECT_EVERY = 10
"""cases: a run looks for garbage seldom, and what is left of one is 4 MB"""
AWAY_S = (0.0, 0.5, 5.0, 20.0, 60.0)
"""the last is longer than a node's lease"""
RESTLESS = "tests.simulation.restless:Restless"
POLICIES = ("hops", "fifo-skipping", "las", RESTLESS, "hare", "hlas-p", "allox")
"""after the first four: jobs take turns on GPUs, tasks of a round do, on several types and on one GPU"""
SETTINGS = {
    **SMALL.settings,
    "snapshot_every": 100,
    "interruptions_max": 1_000_000,
    "jobs_open_max": OPEN_MAX,
    "policies_allowed": " ".join([*ERRING, RESTLESS]),
}


class Case(msgspec.Struct, frozen=True):
    seed: int
    actions: tuple[Action, ...]

    @property
    def policy(self) -> str:
        return POLICIES[self.seed % len(POLICIES)]


class CaseResult(msgspec.Struct):
    """What became of a case."""

    case: Case
    events: int = 0
    """facts in the stream, repetitions too"""
    hits: Counter[int] = msgspec.field(default_factory=Counter)
    """by fault"""
    acknowledged: list[JobId] = []
    """what admission promised in its answers, whatever the stream holds"""
    broken: list[str] = []
    """what does not hold; empty: all is well"""

    def hear(self, answer: object) -> None:
        """An `OnAnswer`."""
        if isinstance(answer, Submitted):
            self.acknowledged.append(answer.job_id)


def random_case(seed: int, rounds: int = ROUNDS) -> Case:
    random = draws(seed, "story")
    actions: list[Action] = []
    for _ in range(rounds):
        actions += [
            Action(
                fault=fault,
                skip=random.randrange(3),
                steps=random.randrange(12),
                pick=random.random(),
                away_s=random.choice(AWAY_S),
            )
            for fault in random.sample(sorted(FAULTS), len(FAULTS))
        ]
    return Case(seed, tuple(actions))


def scenario(seed: int) -> ScenarioFile:
    return msgspec.structs.replace(SMALL, workload=ListedWorkload(jobs=list(_jobs(seed))), settings=SETTINGS)


def _jobs(seed: int) -> Iterator[ArrivingJob]:
    random = draws(seed, "jobs")
    at_s = 0.0
    for number in range(JOBS):
        gpus = random.choice(DEMANDS)
        types = [XP] if random.random() < 0.2 else None
        one = arriving(at_s, f"job-{number}", gpus, random.uniform(100.0, 900.0), types)
        workload = msgspec.structs.replace(one.job.workload, code_version=f"v{random.randrange(WORKLOADS)}")
        yield msgspec.structs.replace(one, job=msgspec.structs.replace(one.job, workload=workload))
        at_s += random.expovariate(1 / 90.0)


def run_case(case: Case, engine: Engine = "conductor", wrap: WrapFactory = unwrapped) -> CaseResult:
    result = CaseResult(case)
    if case.seed % COLLECT_EVERY == 0:
        gc.collect()
    try:
        ran = _run(case, result, engine, wrap)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the case breaks
        result.broken = [f"{type(error).__name__}: {error}"]
        return result
    result.events = ran.seqs[-1]
    result.broken = broken(ran, result.acknowledged)
    return result


def _run(case: Case, result: CaseResult, engine: Engine, wrap: WrapFactory) -> Simulated:
    node_faults, clocks = NodeFaults(), Clocks()
    scenes: list[Scene] = []

    async def disturbance(actions: Sequence[Action], stack: Stack) -> None:
        if not scenes:
            scenes.append(Scene(stack, node_faults, clocks, case.policy, result.hear))
        await _inject(scenes[0], actions, result)

    return simulate(
        scenario(case.seed),
        policy=case.policy,
        seed=case.seed,
        faults=msgspec.structs.replace(BUS_FAULTS, seed=case.seed),
        disturb=[
            _without_end,
            *(partial(disturbance, case.actions[number::AT_A_TIME]) for number in range(AT_A_TIME)),
        ],
        engine=engine,
        runners=faulty_nodes(node_faults, FailureRates(seed=case.seed, breaks=0.1, within_s=300.0)),
        wrap=lambda name, make: clocks.wrap(name, wrap(name, make)),
        on_answer=result.hear,
    )


async def _without_end(stack: Stack) -> None:
    await stack.facts(FACTS_MAX)
    raise RuntimeError(f"it goes on after {FACTS_MAX} facts")


async def _inject(scene: Scene, actions: Sequence[Action], result: CaseResult) -> None:
    for action in actions:
        fault = FAULTS[action.fault]
        fact = await _awaited(scene, fault.when, action.skip)
        if fact is not None:
            await scene.stack.steps(action.steps)
            hit = await fault.inject(scene, action, fact)
            result.hits[action.fault] += hit


async def _awaited(scene: Scene, when: Callable[[Event], bool], skip: int) -> Event | None:
    """The next fact that calls for a fault, after those that are let pass; None: it takes too long."""
    scene.catch_up()
    seen = len(scene.facts)
    for _ in range(PATIENCE):
        await scene.stack.facts(1)
        scene.catch_up()
        for fact in scene.facts[seen:]:
            if when(fact):
                if not skip:
                    return fact
                skip -= 1
        seen = len(scene.facts)
    return None


def broken(ran: Simulated, acknowledged: Sequence[JobId]) -> list[str]:
    """The audit's rules; and whatever was acknowledged is in the log, and what is there has completed."""
    found = [f"{one.rule}: {one.detail}" for one in audit(ran.events, drained=True, seqs=ran.seqs)]
    submitted = {fact.job_id for fact in ran.events if isinstance(fact, JobSubmitted)}
    if lost := {*acknowledged} - submitted:
        found.append(f"acknowledged-lost: the log has not heard of {', '.join(sorted(lost))}")
    completed = {fact.job_id for fact in ran.events if isinstance(fact, JobCompleted)}
    if unfinished := submitted - completed:
        found.append(f"not-completed: {', '.join(sorted(unfinished))}")
    return found


def shortest(case: Case, fails: Callable[[Case], bool]) -> Case:
    """The case with as many actions left out as can be while it still fails (delta debugging)."""
    actions, size = list(case.actions), max(len(case.actions) // 2, 1)
    while True:
        place = 0
        while place < len(actions):
            fewer = actions[:place] + actions[place + size :]
            if fails(Case(case.seed, tuple(fewer))):
                actions = fewer
            else:
                place += size
        if size == 1:
            return Case(case.seed, tuple(actions))
        size //= 2
