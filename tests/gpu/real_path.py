"""The whole way of real jobs on a machine with one GPU: figures as JSON lines, one for each thing looked at.

Here, what that machine lacks, for Python 3.12; there, where nothing can be fetched, the rest:

    python tests/gpu/real_path.py wheels .gpu/wheels
    python3.12 -m venv .gpu/venv && .gpu/venv/bin/pip install --no-index --no-deps .gpu/wheels/*.whl
    .gpu/venv/bin/python tests/gpu/real_path.py accuracy --family vit --out figures.jsonl

Each phase takes less than ten minutes, `accuracy` for one family. `--python` is the interpreter of the jobs,
with torch (for `wheels` any with pip); with `--dry` slots of the CPU and small models stand in, which says
nothing about GPUs.

| phase | looks at |
|---|---|
| accuracy | one slot: estimate against measured throughput, three loaders, two types on the card; a move |
| slots | four nodes on the one card, gloo between them: 1, 2, 4, 1 ranks; mechanism only |
| hygiene | a stranger on the GPU; a rank killed; the agent killed, its job adopted; memory given back |
"""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import metadata
from pathlib import Path
from tempfile import mkdtemp
from typing import TypeVar

import msgspec

from hopyard.api.client import Client
from hopyard.api.connect import connect
from hopyard.local.stack import Stack, running_stack
from hopyard.local.stack_settings import StackSpec
from schemas.cluster import ClusterFile
from schemas.ids import JobId
from schemas.jobs import JobFile
from schemas.overview import RunView
from schemas.views import NodeView
from services.agent.gpus.nvml import NoNvml, Nvml

T = TypeVar("T")

HERE = Path(__file__).parent
FAMILIES = ("resnet50", "vit", "gpt2", "bert")
LOADERS = ("compute", "data", "two-mode")
GIB = 2**30
CHECKPOINT_S = 5.0
PLATFORMS = (
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
)
LEFT_AT_HOME = frozenset({"ortools"})
"""25 MB of back ends that no plan asks for"""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    family: str
    python: str
    dry: bool
    run_s: float
    """of running, for one figure"""
    limit_s: float
    """for anything that is waited for"""
    data: Path

    @property
    def types(self) -> tuple[str, ...]:
        return ("cpu-a", "cpu-b") if self.dry else ("card-fp32", "card-bf16")


Tell = Callable[..., None]


# ---- wheels


def collect(folder: Path, python: str) -> None:
    """What hopyard needs, as wheels for Python 3.12 on Linux, and hopyard itself."""
    folder.mkdir(parents=True, exist_ok=True)
    pinned = [f"{name}=={metadata.version(name)}" for name in sorted(_needed("hopyard", {"gpu"}))]
    common = [python, "-m", "pip"]
    kinds = [word for kind in PLATFORMS for word in ("--platform", kind)]
    platform = ["--python-version", "3.12", *kinds, "--only-binary", ":all:"]
    subprocess.run([*common, "download", "--no-deps", "-q", "-d", folder, *platform, *pinned], check=True)
    subprocess.run([*common, "wheel", "--no-deps", "-q", "-w", folder, HERE.parents[1]], check=True)
    size = sum(file.stat().st_size for file in folder.glob("*.whl"))
    print(f"{len(list(folder.glob('*.whl')))} wheels, {size / 1e6:.0f} MB")


def _needed(name: str, extras: set[str]) -> set[str]:
    """Names of all that a distribution needs to run, itself left out."""
    from packaging.requirements import Requirement  # noqa: PLC0415 - where wheels are collected alone

    found: set[str] = set()
    todo = [(name, extras)]
    while todo:
        at, wanted = todo.pop()
        for text in metadata.requires(at) or []:
            one = Requirement(text)
            environments = [{"extra": extra} for extra in ("", *wanted)]
            applies = one.marker is None or any(one.marker.evaluate(each) for each in environments)
            if applies and one.name.replace("_", "-") not in found | LEFT_AT_HOME:
                found.add(one.name.replace("_", "-"))
                todo.append((one.name, set(one.extras)))
    return found


# ---- a stack, and what is asked of it


class Stage:
    """A stack that runs on this machine, and its client."""

    def __init__(self, options: Options, stack: Stack, client: Client) -> None:
        self.options = options
        self.stack = stack
        self.client = client
        self._jobs = 0

    async def submit(self, family: str, loader: str, *more: str, **fields: object) -> JobId:
        self._jobs += 1
        small = ("--small",) if self.options.dry else ()
        workload = {
            "model": family,
            "dataset": f"made-up-{loader}",
            "batch_size": 4 if self.options.dry else 32,
        }
        job = {
            "name": f"{family}-{loader}",
            "workload": workload,
            "gpus": 1,
            "samples": 5e6,  # an hour or more: long enough for every phase
            "command": [self.options.python, str(HERE / "families.py"), family, loader, *small, *more],
            "checkpoint": {"interval_s": CHECKPOINT_S, "grace_s": 30},
        }
        file = msgspec.convert(job | fields, JobFile)
        return (await self.client.submit(file, f"key-{self._jobs}")).job_id

    async def until(self, what: str, look: Callable[[], Awaitable[T | None]]) -> T:
        """What the look finds first that is true."""
        try:
            async with asyncio.timeout(self.options.limit_s):
                while True:
                    if found := await look():
                        return found
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise SystemExit(f"{what}: not within {self.options.limit_s:g} s") from None

    async def running(self, job: JobId, *, gpus: int = 0, runs: int = 1) -> RunView:
        """The job's newest run, once it is its `runs`-th or a later one and trains on `gpus` GPUs."""

        async def look() -> RunView | None:
            view, page = await self.client.job(job), await self.client.runs(job)
            if view.state in {"failed", "rejected", "cancelled"}:
                raise SystemExit(f"{job} is {view.state}: {view.reason}")
            on = view.gang.gpus if view.gang else 0
            fits = view.state == "running" and page.total >= runs and (not gpus or on == gpus)
            return page.runs[-1] if fits else None

        return await self.until(f"{job} running", look)

    async def measured(self, job: JobId, run_s: float) -> RunView:
        """The run after it has gone on for so long."""
        started = await self.running(job)

        async def look() -> RunView | None:
            page, status = await self.client.runs(job), await self.client.status()
            run = page.runs[-1]
            same = run.placement_id == started.placement_id
            return run if same and status.at - run.started_at >= run_s and run.measured_throughput else None

        return await self.until(f"{job} measured", look)

    async def cancel(self, job: JobId) -> None:
        await self.client.cancel(job)

        async def idle() -> bool:
            return all(not node.jobs for node in (await self.client.nodes()).nodes)

        await self.until(f"{job} gone", idle)

    async def line(self, job: JobId, word: str) -> str:
        async def look() -> str | None:
            lines = [line.text async for line in self.client.output(job, newest=100)]
            return next((text for text in lines if text.startswith(word)), None)

        return str(await self.until(f"{job} prints {word}", look))


@contextlib.asynccontextmanager
async def stage(options: Options, *, nodes: dict[str, int] | None) -> AsyncIterator[Stage]:
    """`nodes`: how many of each type, with one slot each; None: agents join by themselves.

    Gradients are taken to pass in no time: ranks on one card are to come about, whether it pays or not.
    """
    groups = [
        {"prefix": kind, "count": count, "gpus": 1, "gpu_type": kind} for kind, count in (nodes or {}).items()
    ]
    paths = {"link_bandwidth": 1e15, "network_bandwidth": 1e15}
    cluster = {"name": "one-card", "gpu_types": dict.fromkeys(nodes or {}, paths), "nodes": groups}
    spec = StackSpec(
        data=options.data / f"stack-{time.monotonic_ns()}",
        cluster=msgspec.convert(cluster, ClusterFile) if nodes else None,
        clock_origin=time.time(),
        chosen={
            "runner": "process",
            "round_s": 8.0,
            "observe_every_s": 2.0,
            "start_timeout_real_s": 180.0,
            "minimum_run_restarts": 0.0,
            "restart_share_max": 1.0,
            "policy": "hops+moving_cost_s=0",
            "run_folder": mkdtemp(prefix="hop-"),
        },
    )
    async with running_stack(spec, print) as stack, connect(stack.api_url, stack.token) as client:
        yield Stage(options, stack, client)


def memory_used() -> float | None:
    """Bytes on the card; None where there is none."""
    try:
        nvml = Nvml()
        devices = nvml.devices()
        return sum(nvml.read(device.uuid).memory_used for device in devices) if devices else None
    except NoNvml:
        return None


# ---- phases


async def accuracy(options: Options, tell: Tell) -> None:
    before = memory_used()
    async with stage(options, nodes=dict.fromkeys(options.types, 1)) as on:
        for loader in LOADERS[:1] if options.dry else LOADERS:
            for kind in options.types[:1] if options.dry else options.types:
                for time_number in (1, 2):
                    job = await on.submit(options.family, loader, gpu_types=[kind])
                    run = await on.measured(job, options.run_s if time_number == 1 else options.run_s / 3)
                    estimated, measured = run.estimated_throughput or 0.0, run.measured_throughput or 1e-9
                    tell(
                        "estimate", family=options.family, loader=loader, type=kind, time=time_number,
                        layer=run.layer, estimated=estimated, measured=measured,
                        error=abs(estimated - measured) / measured, start_s=run.start_s,
                    )  # fmt: skip
                    await on.cancel(job)
        await _move(on, tell)
        job = await on.submit(options.family, "compute", "--overhead", gpu_types=[options.types[0]])
        tell("overhead", family=options.family, ratio=float((await on.line(job, "ratio ")).split()[1]))
        await on.cancel(job)
    await _given_back(before, tell)


async def _move(on: Stage, tell: Tell) -> None:
    """A job leaves a node that drains, and goes on elsewhere from its checkpoint."""
    job = await on.submit(on.options.family, "compute")
    first = await on.running(job)
    await asyncio.sleep(on.options.run_s / 3)
    node = first.gang.nodes[0]
    await on.client.drain(node)
    second = await on.running(job, runs=2)
    left, came = (await on.client.runs(job)).runs[-2:]
    assert second.gang.nodes != first.gang.nodes, "it runs elsewhere"
    tell(
        "move", family=on.options.family, samples_saved=left.samples_to, samples_restored=came.samples_from,
        stop_s=left.stop_s, start_s=came.start_s,
    )  # fmt: skip
    await on.client.restore(node)
    await on.cancel(job)


async def slots(options: Options, tell: Tell) -> None:
    before = memory_used()
    kind = options.types[0]
    async with stage(options, nodes={kind: 4}) as on:
        nodes = sorted(view.node.node_id for view in (await on.client.nodes()).nodes)
        free, job, runs = 1, JobId(""), 0
        for node in nodes[1:]:
            await on.client.drain(node)
        for wanted in (1, 2, 4, 1):
            for node in nodes[free:wanted]:
                await on.client.restore(node)
            for node in nodes[wanted:free]:
                await on.client.drain(node)
            free = wanted
            job = job or await on.submit(options.family, "compute", gpus=[1, 2, 4])
            run = await on.running(job, gpus=wanted, runs=runs + 1)
            runs = (await on.client.runs(job)).total
            tell("ranks", family=options.family, ranks=run.gang.gpus, samples_from=run.samples_from)
            await asyncio.sleep(options.run_s / 6)
        await on.cancel(job)
    await _given_back(before, tell)


async def hygiene(options: Options, tell: Tell) -> None:
    before = memory_used()
    async with stage(options, nodes=None) as on:
        agent = _agent(on)
        try:
            await on.until("the node", lambda: _node(on, lambda _: True))
            if not options.dry:
                await _stranger(on, tell)
            job = await on.submit(options.family, "compute")
            first = await on.running(job)
            await asyncio.sleep(CHECKPOINT_S + options.run_s / 6)
            os.kill(_rank(on, first.placement_id), signal.SIGKILL)
            second = await on.running(job, runs=2)
            tell(
                "rank killed", samples_from=second.samples_from, restarts=(await on.client.job(job)).restarts
            )
            agent.kill()
            agent.wait()
            agent = _agent(on)
            await asyncio.sleep(options.run_s / 3)
            third = await on.running(job, runs=2)
            tell("agent killed", adopted=third.placement_id == second.placement_id)
            await on.cancel(job)
        finally:
            agent.terminate()
            agent.wait()
    await _given_back(before, tell)


def _agent(on: Stage) -> subprocess.Popen[bytes]:
    """The agent of this machine, as a user would start it."""
    gpus = ("--gpus", "cpu:1") if on.options.dry else ()
    own = {"HOPYARD_RUN_FOLDER": str(on.options.data / "r"), "HOPYARD_START_TIMEOUT_REAL_S": "180"}
    words = (
        sys.executable,
        "-P",
        "-m",
        "hopyard.cli",
        "agent",
        "--join",
        on.stack.nats.url,
        "--name",
        "here",
        *gpus,
    )
    mine = {name: value for name, value in os.environ.items() if not name.startswith("HOPYARD_")}
    return subprocess.Popen(words, env=mine | own, stdout=subprocess.DEVNULL)


def _rank(on: Stage, placement_id: str) -> int:
    """The process of a placement's first rank, by the claim that its agent wrote."""
    (claim,) = (on.options.data / "r").rglob(f"{placement_id}/claim.json")
    return int(msgspec.json.decode(claim.read_bytes())["ranks"][0]["process"]["pid"])


async def _node(on: Stage, fine: Callable[[NodeView], object]) -> NodeView | None:
    return next((view for view in (await on.client.nodes()).nodes if fine(view)), None)


async def _stranger(on: Stage, tell: Tell) -> None:
    """Somebody else's process on the GPU."""
    code = "import torch, time; x = torch.zeros(2**29, device='cuda'); print(1, flush=True); time.sleep(1000)"
    stranger = await asyncio.create_subprocess_exec(
        on.options.python, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    assert stranger.stdout is not None
    await stranger.stdout.readline()
    view = await on.until("the GPU is withheld", lambda: _node(on, lambda view: view.withheld))
    tell("stranger", withheld=view.withheld)
    stranger.kill()
    await stranger.wait()
    await on.until("the GPU is back", lambda: _node(on, lambda view: not view.withheld))


async def _given_back(before: float | None, tell: Tell) -> None:
    """Memory of the card within five seconds of the end."""
    if before is None:
        return
    ended = time.monotonic()
    while (left := (memory_used() or 0.0) - before) > GIB / 16 and time.monotonic() - ended < 5.0:
        await asyncio.sleep(0.1)
    tell("memory given back", left_bytes=left, after_s=time.monotonic() - ended)


PHASES = {"accuracy": accuracy, "slots": slots, "hygiene": hygiene}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("phase", choices=[*PHASES, "wheels"])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(".gpu/wheels"))
    parser.add_argument("--family", choices=FAMILIES, default="vit")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--run-s", type=float, default=60.0)
    parser.add_argument("--limit-s", type=float, default=240.0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.phase == "wheels":
        collect(given.folder, given.python)
        return
    options = Options(
        family=given.family,
        python=given.python,
        dry=given.dry,
        run_s=given.run_s,
        limit_s=given.limit_s,
        data=Path(mkdtemp(prefix="real-path-")),
    )

    def tell(what: str, **figures: object) -> None:
        line = msgspec.json.encode({"phase": given.phase, "dry": given.dry, "what": what} | figures).decode()
        print(line, flush=True)
        if given.out:
            with given.out.open("a") as file:
                file.write(line + "\n")

    asyncio.run(PHASES[given.phase](options, tell))


if __name__ == "__main__":
    main()
