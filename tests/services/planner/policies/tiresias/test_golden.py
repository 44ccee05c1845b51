"""Tiresias and the classical orders, job by job against the outputs of the Tiresias authors' simulator."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from schemas.ids import JobId
from services.planner.policies.classical.fifo import Fifo, FifoSkipping
from services.planner.policies.classical.srsf import Srsf
from services.planner.policies.classical.srtf import Srtf
from services.planner.policies.contract.decision import Policy
from services.planner.policies.contract.view import View, ViewJob, ViewNode
from services.planner.policies.kit.known_jobs import held
from services.planner.policies.kit.ordered import Ordered, WalkResult, smallest_first
from services.planner.policies.tiresias.policy import Tiresias, TiresiasOptions
from tests.paths import DATA
from tests.services.planner.planner_builders import node
from tests.services.planner.policies.policy_replay import Job, replayed, rows, trace

GOLDEN = DATA / "golden/tiresias"
HISTORY = Path(__file__).with_name("tiresias_history.txt")
NODES = {"n2g4": 2, "n4g4": 4}
NODE_GPUS = 4


class AsLastTime(Ordered):
    """The authors sort the list they sorted last time, so ties go by the order of then."""

    def order(self, view: View) -> Sequence[ViewJob]:
        last = msgspec.json.decode(view.memory, type=list[JobId]) if view.memory else []
        place = {job_id: place for place, job_id in enumerate(last)}
        jobs = sorted(view.jobs, key=lambda job: place.get(job.job_id, len(place)))
        return super().order(msgspec.structs.replace(view, jobs=tuple(jobs)))  # type: ignore[safe-super]

    def verdict(self, view: View) -> WalkResult:
        memory = msgspec.json.encode([job.job_id for job in self.order(view)])
        return msgspec.structs.replace(super().verdict(view), memory=memory)


class Shortest(AsLastTime, Srtf):
    pass


class ShortestGpu(AsLastTime, Srsf):
    pass


class ByCount(Srtf):
    def order(self, view: View) -> Sequence[ViewJob]:
        return smallest_first(view, lambda job: job.demand[0])


class SmallestFirst(AsLastTime, ByCount):
    """What the authors call `sjf`: by GPU count."""


class EverySecond(Fifo):
    """What the authors call `lpjf`, longest pending job first: their pending times stay 0, so it is first
    in, first out; and they remove from the list they walk, so each start passes over the next in line.
    """

    def order(self, view: View) -> Sequence[ViewJob]:
        return [job for job in view.jobs if held(job)] + [job for job in view.jobs if not held(job)][::2]


def tiresias(**fields: str | float) -> Policy:
    return Tiresias(TiresiasOptions(faithful=True, **fields), _history())  # type: ignore[arg-type]


def _history() -> list[float]:
    lines = HISTORY.read_text(encoding="utf-8").splitlines()
    return [float(figure) for line in lines if not line.startswith("#") for figure in line.split()]


POLICIES: dict[str, Callable[[], Policy]] = {
    "fifo": Fifo,
    "fjf": FifoSkipping,
    "lpjf": EverySecond,
    "sjf": SmallestFirst,
    "shortest": Shortest,
    "shortest-gpu": ShortestGpu,
    "dlas": lambda: tiresias(service="time"),
    "dlas-gpu": tiresias,
    "dlas-gpu-gittins": lambda: tiresias(order="gittins"),
}


def policy_of(name: str) -> Policy:
    """The names are the authors'; `dlas-gpu-8` is promotion after 8 times the running time."""
    if name in POLICIES:
        return POLICIES[name]()
    knob = name.removeprefix("dlas-gpu-")
    return tiresias(promote_knob=0.5 if knob == "05" else float(knob))


def counted(name: str) -> bool:
    """Whether the authors count preemptions and starts: the policies that never preempt leave them 0."""
    return name not in {"fifo", "fjf", "lpjf"}


def counting(nodes: int) -> list[ViewNode]:
    """The authors' placement "count": on one large node places do not matter."""
    return [node("all", nodes * NODE_GPUS, gpus=nodes * NODE_GPUS)]


def spread(nodes: int) -> list[ViewNode]:
    """Their nodes: places matter to none of these jobs, which may be spread over any."""
    return [node(f"n{index}", NODE_GPUS, gpus=NODE_GPUS) for index in range(nodes)]


def summary(job: Job, *, counted: bool) -> list[int]:
    times = [job.started, job.ended, job.waited]
    counts = [job.preempted, job.resumed, job.promoted] if counted else [0, 0, 0]
    return [int(value) for value in (*times, *counts)]


@pytest.mark.parametrize("cluster", [counting, spread])
@pytest.mark.parametrize(
    "file", sorted(GOLDEN.glob("*.job.csv")), ids=lambda file: file.name[: -len(".job.csv")]
)
def test_every_job_has_the_authors_times(file: Path, cluster: Callable[[int], list[ViewNode]]) -> None:
    spec, jobs, name = file.name.removesuffix(".job.csv").split("__")
    done = replayed(policy_of(name), trace(GOLDEN / f"{jobs}.csv"), cluster(NODES[spec]))
    columns = ("start_time", "end_time", "pending_time", "preempt", "resume", "promote")
    theirs = {row["job_id"]: [int(row[column]) for column in columns] for row in rows(file)}
    ours = {job_id: summary(job, counted=counted(name)) for job_id, job in done.items()}
    assert ours == theirs
