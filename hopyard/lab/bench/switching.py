"""Measures how long a device takes from one job's last task to another's first, in three ways to switch.

`new process`: the one job is ordered to stop, saves and ends, and the other starts, imports torch and loads
its model. `fork`: as before, of a process that has imported torch. `resident`: all jobs stay there and take
turns. Real jobs on the runner `process`, on a GPU where the machine has one, else on a slot of its CPU.
"""

import asyncio
import contextlib
import os
import pwd
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec

from hopyard.failures import Failure, NotReady
from hopyard.lab.bench.figures import Benchmark, Grid, Reading, seconds
from hopyard.local.processes import Say
from loadgen.world.switching import switch_s
from schemas.cluster import Node
from schemas.events import StartOrdered
from schemas.ids import GpuType, JobId, NodeId, PlacementId, RotaId
from schemas.jobs import JobSpec, Workload
from schemas.placement import LOCKSTEP, Gang, Relaxed, Sync
from schemas.settings import Settings, Switching
from services.agent.process.folders import Folders
from services.agent.process.runner import ProcessRunner
from services.agent.tasks import LastReport, Report, Started

MODELS = ("shapes", "spirals", "sums", "waves")
ROUNDS = 100
"""turns of each job while all are resident"""
WARM = 10
"""rounds of each job before measuring"""
TASKS = 20
"""rounds of a job before it gives way to the next, when jobs run one at a time"""
LIMIT_S = 300.0
LOOK_EVERY_S = 0.02
NODE = Node(
    node_id=NodeId("here"),
    gpu_type=GpuType("device"),
    gpus=1,
    server="here",
    link_bandwidth=1e9,
    network_bandwidth=1e9,
)
WAYS: Mapping[str, Switching] = {"new process": "default", "fork": "pipeswitch", "resident": "hare"}
"""our figures, with the paper's beside them"""
PAPER = Workload(model="none of its", dataset="-", batch_size=1)

Span = tuple[float, float]
"""beginning and end of a task, seconds of the machine's clock"""


async def switching(data: Path, python: Path, say: Say) -> Benchmark:
    """`data`: an empty folder. Raises Failure: a job did not run."""
    found = {}
    for way, template in (("new process", False), ("fork", True)):
        say(f"  {way}")
        found[way] = await _one_by_one(data / way.replace(" ", "-"), python, template=template)
    say("  resident")
    async with running(data / "resident", python, template=True) as node:
        spans = await in_turns(node, MODELS, ROUNDS)
    found["resident"] = {model: median(taken) for model, taken in switches(spans).items()}
    tasks = {model: median(end - begin for begin, end in of_model) for model, of_model in spans.items()}
    return Benchmark(
        name="switching",
        conditions="from a job's last task to the first of the job of the row, and its share of both; "
        f"resident: median of {ROUNDS} turns. Hare: default, PipeSwitch and Hare of its table III, mean",
        figures=tuple(_readings(found, tasks)),
        grid=_grid(found, tasks),
    )


def switches(spans: Mapping[str, Sequence[Span]]) -> dict[str, list[float]]:
    """Seconds, by the job that was switched to. `spans`: of all jobs' tasks."""
    line = sorted((begin, end, job) for job, of_job in spans.items() for begin, end in of_job)
    taken: dict[str, list[float]] = {job: [] for job in spans}
    for (_, end, job), (begin, _, after) in pairwise(line):
        if after != job:
            taken[after].append(begin - end)
    return taken


def _readings(found: Mapping[str, Mapping[str, float]], tasks: Mapping[str, float]) -> Iterable[Reading]:
    for model, task_s in tasks.items():
        yield from (seconds(f"{model}: {way}", of_way[model]) for way, of_way in found.items())
        yield seconds(f"{model}: task", task_s)


def _grid(found: Mapping[str, Mapping[str, float]], tasks: Mapping[str, float]) -> Grid:
    """A table like the paper's table III: the time of a switch, and its share of switch and task together."""
    rows = [
        (model, *(_cell(of_way[model], task_s) for of_way in found.values()), f"{task_s * 1000:.1f} ms")
        for model, task_s in tasks.items()
    ]
    paper = [f"{switch_s(PAPER, column) * 1000:.2f} ms" for column in WAYS.values()]
    return Grid(
        columns=("switched to", *found, "task"),
        rows=(*rows, ("Hare", *paper, "")),
    )


def _cell(switch: float, task_s: float) -> str:
    return f"{switch * 1000:.2f} ms ({switch / (switch + task_s):.1%})"


# ---- the jobs


class JobNode:
    """A runner, and what it reported."""

    def __init__(self, data: Path, python: Path, settings: Settings) -> None:
        data.mkdir()
        self.data, self.python = data, python
        self.folders = Folders(data / "run", data / "jobs")
        self.runner = ProcessRunner(self.folders, settings)
        self.reports: list[Report] = []
        self.running: asyncio.Future[None]

    def start(self, name: str, model: str, sync: Sync = LOCKSTEP) -> None:
        self.runner.start(self._order(name, model, sync), (0,))

    async def train(self, name: str) -> None:
        """Wait until the job is up."""
        await self.until(lambda: any(isinstance(one, Started) for one in self._of(name)), name)
        self.runner.train(PlacementId(name), "")

    async def stop(self, names: Iterable[str]) -> None:
        for name in names:
            self.runner.stop(PlacementId(name))

    async def done(self, name: str, tasks: int) -> None:
        await self.until(lambda: len(self.spans(name)) >= tasks, name)

    def spans(self, name: str) -> list[Span]:
        file = self.data / name
        text = file.read_text("ascii") if file.exists() else ""
        complete = text[: text.rfind("\n") + 1].splitlines()
        return [(float(begin), float(end)) for begin, end in map(str.split, complete)]

    async def until(self, there: Callable[[], bool], name: str) -> None:
        """Wait until `there` is true. Raises Failure."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while not there():
                    if ended := next((one for one in self._of(name) if isinstance(one, LastReport)), None):
                        raise Failure(f"the job {name} ended: {getattr(ended, 'reason', ended)}")
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError:
            raise NotReady(f"the job {name} does not run after {LIMIT_S:g} s") from None

    def _of(self, name: str) -> list[Report]:
        return [one for one in self.reports if getattr(one, "placement_id", "") == name]

    def _order(self, name: str, model: str, sync: Sync) -> StartOrdered:
        command = (str(self.python), "-m", "hopjob.switching", model, str(self.data / name))
        spec = JobSpec(
            name=name,
            workload=Workload(model=model, dataset="made-up", batch_size=32),
            demand=(1,),
            samples=1e12,
            command=command,
            user=pwd.getpwuid(os.geteuid()).pw_name,
            working_directory="/",
        )
        return StartOrdered(
            at=0.0,
            node_id=NODE.node_id,
            placement_id=PlacementId(name),
            job_id=JobId(name),
            spec=spec,
            gang=Gang.of({NODE.node_id: 1}, sync),
            nodes=(NODE,),
            samples_done=0.0,
            learning_rate=None,
        )


@contextlib.asynccontextmanager
async def running(data: Path, python: Path, *, template: bool) -> AsyncIterator[JobNode]:
    settings = msgspec.convert({"template": template, "jobs_folder": str(data / "jobs")}, Settings)
    node = JobNode(data, python, settings)
    node.running = asyncio.ensure_future(node.runner.run(node.reports.append, None))
    try:
        yield node
    finally:
        node.running.cancel()
        await asyncio.wait({node.running})


async def _one_by_one(data: Path, python: Path, *, template: bool) -> dict[str, float]:
    """Seconds by model, when each job gives way to the next."""
    async with running(data, python, template=template) as node:
        names = ["first", *MODELS]
        for before, name in pairwise(["", *names]):
            if before:
                await node.done(before, TASKS)
                await node.stop([before])
            node.start(name, MODELS[-1] if name == "first" else name)
            await node.train(name)
        await node.done(names[-1], TASKS)
        taken = switches({name: node.spans(name) for name in names})
    return {model: taken[model][0] for model in MODELS}


async def in_turns(node: JobNode, models: Sequence[str], rounds: int) -> dict[str, list[Span]]:
    """Tasks by model, once all jobs are up."""
    for place, model in enumerate(models):
        node.start(model, model, Relaxed(tasks=((1,),), rota=RotaId("all"), place=place))
        await node.train(model)
    for model in models:
        await node.done(model, 1)
    begin = max(node.spans(model)[0][0] for model in models)
    had = {model: len(node.spans(model)) for model in models}
    for model in models:
        await node.done(model, had[model] + WARM + rounds)
    return {model: [one for one in node.spans(model) if one[0] > begin][WARM:] for model in models}
