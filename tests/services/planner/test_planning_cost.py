"""The cost of a plan without the solve, from facts to the integer program. Figures, and generous bounds."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from schemas.codec import decode_question, encode_plain
from schemas.ids import GpuType
from schemas.jobs import Workload
from schemas.measurements import DataMode, TimeModules
from schemas.plans import PlanKind
from schemas.questions import EstimateQuestion, Estimates
from services.estimator import tasks
from services.estimator.lookup.layers import EvidenceThreshold
from services.estimator.store.memory_store import MemoryStore
from services.estimator.work.workers import StoreWorkers
from services.planner.core.folds import fold
from services.planner.core.state import State
from services.planner.core.viewing import view_of
from services.planner.policies.contract.estimates import Inquiry, Remembered, estimated, inquiry, question
from services.planner.policies.contract.view import View
from services.planner.policies.hops.policy import Hops, HopsOptions
from services.planner.solver.effort import Effort
from services.planner.solver.greedy import greedy
from services.planner.solver.problem import Problem, Solution
from tests.fact_builders import a_node, joined, profiled, queued, submitted
from tests.services.planner.planner_builders import MODELLED

TYPES = tuple(GpuType(name) for name in ("gtx", "rtx", "titan"))
WORKLOADS = 21
DEMAND = (1, 2, 3, 4, 6, 8, 12, 16)
MODULES = TimeModules(
    data=(DataMode(probability=1.0, mean_s=0.1, std_s=0.01),),
    forward_s=0.1,
    backward_s=0.2,
    update_s=0.01,
    parameters=25e6,
    pattern=1,
    iterations=30,
)


class Watch:
    """Processor seconds, by what they were spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        began = time.process_time()
        yield
        self.seconds[name] = time.process_time() - began

    def show(self) -> float:
        for name, seconds in self.seconds.items():
            print(f"  {name}: {seconds * 1000:.0f} ms")
        return sum(self.seconds.values())


def cluster(gpus: int, jobs: int, workloads: int) -> State:
    state = State()
    for index in range(gpus // 8):
        fold(state, joined(f"node-{index:04d}", gpu_type=TYPES[index % len(TYPES)]))
    for index in range(jobs):
        name = f"job-{index:04d}"
        fold(state, submitted(name, demand=DEMAND, workload=workload(index % workloads)))
        fold(state, profiled(name))
        fold(state, queued(name, single_gpu=dict.fromkeys(TYPES, 10.0)))
    for job in state.jobs.values():
        job.sensitivity = 1.6 if job.workload.endswith("0|sgd|") else 1.2
    return state


def workload(number: int) -> Workload:
    return Workload(model=f"model-{number}", dataset="imagenet", batch_size=100)


def estimator(workloads: int) -> StoreWorkers:
    store = MemoryStore(1e6)
    for number in range(workloads):
        store.keep(workload(number), dict.fromkeys(TYPES, MODULES))
    return StoreWorkers(store, EvidenceThreshold(3, 60.0))


def answered(workers: StoreWorkers, data: bytes, state: State) -> Estimates:
    asked = decode_question(data)
    assert isinstance(asked, EstimateQuestion)
    nodes = tuple(a_node(name, gpu_type=state.nodes[name].node.gpu_type) for name in asked.nodes)
    task = tasks.Estimate(ticket=1, question=asked, fingerprints=asked.workloads, nodes=nodes, cluster=nodes)
    answer = workers.answer(task).message
    assert isinstance(answer, Estimates), answer
    return answer


def planned(gpus: int, jobs: int, workloads: int) -> tuple[Watch, Problem, Inquiry]:
    """Everything that happens between a trigger and the solver."""
    state, workers, watch = cluster(gpus, jobs, workloads), estimator(workloads), Watch()
    policy, memory, problems = Hops(HopsOptions(window_factor=100.0)), Remembered(), list[Problem]()

    def solve(problem: Problem, _: Effort) -> Solution:
        problems.append(problem)
        watch.seconds["gains, program"] = time.process_time() - began
        return greedy(problem)

    with watch.on("view"):
        view = seen(state)
    with watch.on("configurations"):
        wanted = policy.wants(view)
    with watch.on("question"):
        about = inquiry(wanted, view)
        data = encode_plain(question(about))
    with watch.on("estimator"):
        reply = answered(workers, data, state)
    with watch.on("estimates"):
        fresh = estimated(reply, len(about.asked))
        memory.learn(about, fresh)
        estimates = fresh.at(about.which)
    began = time.process_time()
    decision = policy.decide(view, wanted, estimates, solve)
    print(
        f"\n{gpus} GPUs, {jobs} jobs of {workloads} workloads: {len(wanted)} configurations, "
        f"{len(about.asked)} asked about, {len(data) / 1e6:.1f} MB, {len(decision.choices)} placements"
    )
    return watch, problems[0], about


def seen(state: State) -> View:
    return view_of(
        state, kind=PlanKind.FIRST, at=100.0, round_s=360.0, restart_s=15.0, policy="hops", effort=MODELLED
    )


@pytest.mark.benchmark
@pytest.mark.parametrize(("gpus", "jobs"), [(512, 150), (2048, 600)])
def test_from_the_view_to_the_program(gpus: int, jobs: int) -> None:
    watch, problem, about = planned(gpus, jobs, WORKLOADS)
    assert watch.show() < 1.0
    assert len(problem) == len(about.which)
    assert len(about.asked) * 5 < len(problem)


@pytest.mark.benchmark
def test_jobs_that_have_nothing_in_common() -> None:
    watch, _, about = planned(2048, 600, 600)
    assert watch.show() < 5.0
    assert len(about.asked) == len(about.which)


@pytest.mark.benchmark
def test_twelve_million_configurations_fit_into_memory() -> None:
    watch, problem, about = planned(8192, 1500, WORKLOADS)
    watch.show()
    columns = (problem.job, problem.start, problem.node, problem.gpus, problem.gain, about.which)
    size = sum(column.nbytes for column in columns)
    print(f"  {len(problem)} configurations in {size / 1e6:.0f} MB")
    assert size < 0.5e9
