"""Tiresias and the classical orders, job by job against the outputs of the Tiresias authors' simulator."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from planner_builders import node
from policy_replay import DATA, Job, needs_data, replayed, rows, trace

from schemas.ids import JobId
from schemas.settings import Settings
from services.planner.policies.contract import Policy
from services.planner.policies.fifo import Fifo, FifoSkipping
from services.planner.policies.ordered import Ordered, Verdict, held, smallest_first
from services.planner.policies.srsf import Srsf
from services.planner.policies.srtf import Srtf
from services.planner.policies.tiresias import Tiresias
from services.planner.view import View, ViewJob, ViewNode

GOLDEN = DATA / "golden/tiresias"
HISTORY = Path(__file__).with_name("tiresias_history.txt")
GPUS = {"n2g4": 8, "n4g4": 16}


class AsLastTime(Ordered):
    """The authors sort the list they sorted last time, so ties go by the order of then."""

    def order(self, view: View) -> Sequence[ViewJob]:
        last = msgspec.json.decode(view.memory, type=list[JobId]) if view.memory else []
        place = {job_id: place for place, job_id in enumerate(last)}
        jobs = sorted(view.jobs, key=lambda job: place.get(job.job_id, len(place)))
        return super().order(msgspec.structs.replace(view, jobs=tuple(jobs)))  # type: ignore[safe-super]

    def verdict(self, view: View) -> Verdict:
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
    return Tiresias(Settings(tiresias_faithful=True, **fields), _history())  # type: ignore[arg-type]


def _history() -> list[float]:
    lines = HISTORY.read_text(encoding="utf-8").splitlines()
    return [float(figure) for line in lines if not line.startswith("#") for figure in line.split()]


def plain(kind: Callable[[Settings], Policy]) -> Callable[[], Policy]:
    return lambda: kind(Settings())


POLICIES: dict[str, Callable[[], Policy]] = {
    "fifo": plain(Fifo),
    "fjf": plain(FifoSkipping),
    "lpjf": plain(EverySecond),
    "sjf": plain(SmallestFirst),
    "shortest": plain(Shortest),
    "shortest-gpu": plain(ShortestGpu),
    "dlas": lambda: tiresias(tiresias_service="time"),
    "dlas-gpu": tiresias,
    "dlas-gpu-gittins": lambda: tiresias(tiresias_order="gittins"),
}


def policy_of(name: str) -> Policy:
    """The names are the authors'; `dlas-gpu-8` is promotion after 8 times the running time."""
    if name in POLICIES:
        return POLICIES[name]()
    knob = name.removeprefix("dlas-gpu-")
    return tiresias(tiresias_promote_knob=0.5 if knob == "05" else float(knob))


def counted(name: str) -> bool:
    """Whether the authors count preemptions and starts: the policies that never preempt leave them 0."""
    return name not in {"fifo", "fjf", "lpjf"}


def counting(gpus: int) -> list[ViewNode]:
    """The authors' placement "count": on one large node places do not matter."""
    return [node("all", gpus, gpus=gpus)]


def summary(job: Job, *, counted: bool) -> list[int]:
    times = [job.started, job.ended, job.waited]
    counts = [job.preempted, job.resumed, job.promoted] if counted else [0, 0, 0]
    return [int(value) for value in (*times, *counts)]


@needs_data
@pytest.mark.parametrize(
    "file", sorted(GOLDEN.glob("*.job.csv")), ids=lambda file: file.name[: -len(".job.csv")]
)
def test_every_job_has_the_authors_times(file: Path) -> None:
    spec, jobs, name = file.name.removesuffix(".job.csv").split("__")
    done = replayed(policy_of(name), trace(GOLDEN / f"{jobs}.csv"), counting(GPUS[spec]))
    columns = ("start_time", "end_time", "pending_time", "preempt", "resume", "promote")
    told = {row["job_id"]: [int(row[column]) for column in columns] for row in rows(file)}
    ours = {job_id: summary(job, counted=counted(name)) for job_id, job in done.items()}
    assert ours == told
