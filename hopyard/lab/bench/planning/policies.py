"""What a plan costs under every installed policy: from the view to a decision that could be published.

Each policy plays the same rounds of the same clusters (see `rounds`). It is asked as the planner asks it: in
the process for policies, with the default solver and effort, on the wall clock, each step under the planner's
own limit. Where it fails, what runs stays. The estimator's part is not in the times.
"""

import time
from collections.abc import Sequence
from statistics import median

import msgspec

from hopyard.lab.bench.figures import Benchmark, Grid
from hopyard.lab.bench.planning.instances import Scene, Shape
from hopyard.lab.bench.planning.rounds import STEPS, after, opening
from hopyard.local.processes import Say
from hopyard.show.units import duration
from schemas.settings import Settings
from services.planner.core.without_estimates import keep_running
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.view import View
from services.planner.policies.registry import names
from services.planner.work.policy_process import Answer, policy_process
from services.planner.work.steps import Decide, PolicyFailed, Want
from services.planner.work.workers import GRACE_REAL_S
from shared.runtime.offload import Crashed, HelperProcess, LiveOffload

SIZES = (64, 512, 2_048)
"""GPUs"""
JOBS_AT_LEAST = 125
JOBS_PER_GPU = 0.25
"""jobs that are present at the scenario's own load"""
WANTS_REAL_S = Settings().policy_wants_real_s
COLUMNS = (
    "GPUs",
    "policy",
    "jobs max",
    "configurations max",
    "plan p50 s",
    "plan max s",
    "first max s",
    "next max s",
    "reset max s",
    "gap max %",
    "in time",
)


class PlanTime(msgspec.Struct, frozen=True, kw_only=True):
    """One plan."""

    jobs: int
    configurations: int
    seconds: float
    gap: float
    failed: str
    """why there was no plan; empty: it was in time and followed the rules"""


async def policies(
    say: Say, sizes: Sequence[int] = (), clusters: int = 1, asked: Sequence[str] = ()
) -> Benchmark:
    """No `sizes`: the usual ones; `clusters` of each; nothing `asked` for: every installed policy."""
    rows = []
    for gpus in sizes or SIZES:
        load = max(JOBS_AT_LEAST / gpus, 1.0) / JOBS_PER_GPU
        scenes = [Scene(Shape(gpus=gpus, load=load), seed) for seed in range(1, clusters + 1)]
        for policy in asked or names():
            games = [await play(policy, scene) for scene in scenes]
            rows.append(_row(gpus, policy, games))
            say(f"  {gpus} GPUs, {policy}: {_line(games)}")
    return Benchmark(
        name="policies",
        conditions=f"clusters a size: {clusters}; {len(STEPS)} plans each, the last after Gavel's reset",
        figures=(),
        grid=Grid(columns=COLUMNS, rows=tuple(rows)),
    )


async def play(policy: str, scene: Scene) -> list[PlanTime]:
    """The time that each plan took."""
    process, took = policy_process(Settings(), LiveOffload()), []
    try:
        view, batches = opening(scene)
        decision = keep_running(view, "nothing is decided yet")
        await _answer(process, Want(policy=policy, view=view), WANTS_REAL_S)  # and loads the policy
        for rounds, batch in zip(STEPS, batches, strict=True):
            view = after(view, decision, rounds, batch)
            one, decision = await _planned(process, policy, scene, view)
            took.append(one)
    finally:
        process.end()
    return took


async def _planned(
    process: HelperProcess, policy: str, scene: Scene, view: View
) -> tuple[PlanTime, Decision]:
    await process.warm()
    wanted, seconds = await _answer(process, Want(policy=policy, view=view), WANTS_REAL_S)
    if not isinstance(wanted, Configurations):
        return _took(view, 0, seconds, wanted)
    step = Decide(policy=policy, view=view, wanted=wanted, estimates=scene.estimates(wanted))
    answer, more_s = await _answer(process, step, view.effort.budget_s + GRACE_REAL_S)
    return _took(view, len(wanted), seconds + more_s, answer)


def _took(view: View, configurations: int, seconds: float, answer: Answer) -> tuple[PlanTime, Decision]:
    failed = answer.reason if isinstance(answer, PolicyFailed) else ""
    decision = answer if isinstance(answer, Decision) else keep_running(view, failed)
    took = PlanTime(
        jobs=len(view.jobs),
        configurations=configurations,
        seconds=seconds,
        gap=decision.gap,
        failed=failed,
    )
    return took, decision


async def _answer(process: HelperProcess, request: Want | Decide, deadline_s: float) -> tuple[Answer, float]:
    began = time.perf_counter()
    try:
        answer: Answer = await process.call(request, deadline_s)
    except Crashed as error:
        answer = PolicyFailed(reason=str(error), crashed=True)
    return answer, time.perf_counter() - began


def _row(gpus: int, policy: str, games: Sequence[Sequence[PlanTime]]) -> tuple[str | float, ...]:
    """See COLUMNS."""
    took = [one for game in games for one in game]
    times = [one.seconds for one in took]
    return (
        str(gpus),
        policy,
        max(one.jobs for one in took),
        max(one.configurations for one in took),
        median(times),
        max(times),
        max(game[0].seconds for game in games),
        max(one.seconds for game in games for one in game[1:-1]),
        max(game[-1].seconds for game in games),
        100 * max(one.gap for one in took),
        f"{sum(not one.failed for one in took)}/{len(took)}",
    )


def _line(games: Sequence[Sequence[PlanTime]]) -> str:
    took = [one for game in games for one in game]
    failures = sorted({f"; {one.failed}" for one in took if one.failed})
    return f"{duration(max(one.seconds for one in took))} at most{''.join(failures)}"
