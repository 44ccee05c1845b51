"""A whole run on this machine: stack up, workload replayed, log audited, metrics computed, stack down."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hopyard.actions.scenario import cluster_of, valid
from hopyard.actions.up import on_terminal
from hopyard.api.client import Client
from hopyard.api.connect import connect, patiently
from hopyard.failures import Failure
from hopyard.local.processes import Say
from hopyard.local.stack import running_stack
from hopyard.local.stack_settings import StackSpec, settings_of
from hopyard.show.progress import RunStatus, Show
from loadgen.replay import next_round, replay
from loadgen.results import cut_jobs, run_result
from loadgen.scenarios import arrivals as arrivals_of
from schemas.results import RunResult
from schemas.scenarios import Arrival, PolicyChange, ScenarioFile
from schemas.views import PolicyChoice, StatusView
from shared.domain.audit import Violation, audit
from shared.domain.states import ENDED, JobState
from shared.runtime.clock import ScaledClock

LOOK_EVERY_S = 0.5


class DemoSpec(msgspec.Struct, frozen=True, kw_only=True):
    scenario: ScenarioFile
    data: Path
    seed: int
    speed: float
    policy: str | None
    limit_s: float
    """real seconds after which the run is given up"""


class DemoResult(msgspec.Struct, frozen=True):
    result: RunResult
    violations: list[Violation]
    """what the audit of the event log found: nothing, if all is well"""

    def complete(self) -> bool:
        return self.result.jobs.get(JobState.COMPLETED, 0) == self.result.jobs["submitted"]


async def run_demo(spec: DemoSpec, show: Show, say: Say) -> DemoResult:
    """Run the workload to its end, and end the stack in any case. Raises Failure."""
    try:
        async with asyncio.timeout(spec.limit_s):
            return await _run_demo(spec, show, say)
    except TimeoutError:
        raise Failure(f"not done after {spec.limit_s:g} s; --limit allows more") from None


async def _run_demo(spec: DemoSpec, show: Show, say: Say) -> DemoResult:
    began = time.monotonic()
    arrivals = valid(lambda: arrivals_of(spec.scenario, seed=spec.seed))
    stack_spec = _stack_spec(spec)
    settings = settings_of(stack_spec)
    async with running_stack(stack_spec, say) as stack, connect(stack.api_url, stack.token) as client:
        say(f"page to watch in a browser, while it runs: {on_terminal(stack)}")
        run = _Run(
            client, arrivals, spec.scenario.policies, round_s=settings.round_s, speed=spec.speed, show=show
        )
        await run.to_the_end(ScaledClock(origin=stack_spec.clock_origin, speed=spec.speed))
        lines = [line async for line in client.events()]
    events = [line.fact() for line in lines]
    result = run_result(
        events,
        scenario=spec.scenario.name,
        policy=settings.policy,
        seed=spec.seed,
        speed=spec.speed,
        settings=settings,
        wall_s=time.monotonic() - began,
        changes=spec.scenario.policies,
        cut=cut_jobs(arrivals),
    )
    return DemoResult(result, audit(events, drained=True, seqs=[line.seq for line in lines]))


def _stack_spec(spec: DemoSpec) -> StackSpec:
    chosen: dict[str, str | int | float | bool] = {"seed": spec.seed}
    return StackSpec(
        data=spec.data,
        cluster=cluster_of(spec.scenario),
        catalogue=spec.scenario.catalogue,
        clock_origin=time.time(),
        speed=spec.speed,
        scenario=spec.scenario.name,
        settings=spec.scenario.settings,
        chosen=chosen if spec.policy is None else chosen | {"policy": spec.policy},
    )


class _Run:
    """The replay, and the watch over it."""

    def __init__(
        self,
        client: Client,
        arrivals: Sequence[Arrival],
        policies: Sequence[PolicyChange],
        *,
        round_s: float,
        speed: float,
        show: Show,
    ) -> None:
        self._client = client
        self._policies = policies
        self._arrivals = arrivals
        self._round_s = round_s
        self._arriving_s = max((arrival.at_s for arrival in arrivals), default=0.0) / speed
        """real seconds until the last job comes"""
        self._show = show
        self._submitted = 0
        self._began = time.monotonic()

    async def to_the_end(self, clock: ScaledClock) -> None:
        """Wait until every job has been submitted and has ended."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._replay(clock))
            choosing = group.create_task(self._choose_in_turn(clock))
            await self._watch()
            choosing.cancel()

    async def _replay(self, clock: ScaledClock) -> None:
        await next_round(clock, self._round_s)
        await replay(self._arrivals, self._submit, clock)

    async def _choose_in_turn(self, clock: ScaledClock) -> None:
        await next_round(clock, self._round_s)
        await replay(self._policies, self._choose, clock)

    async def _choose(self, change: PolicyChange) -> None:
        await patiently(lambda: self._client.set_policy(PolicyChoice(policy=change.policy)))

    async def _submit(self, arrival: Arrival) -> None:
        key = f"demo-{self._submitted}"
        await patiently(lambda: self._client.submit(arrival.job, key))
        self._submitted += 1

    async def _watch(self) -> None:
        while True:
            status = await patiently(self._client.status)
            self._show(self._glance(status))
            if self._submitted == len(self._arrivals) and ended(status) >= len(self._arrivals):
                return
            await asyncio.sleep(LOOK_EVERY_S)

    def _glance(self, status: StatusView) -> RunStatus:
        elapsed_s = time.monotonic() - self._began
        return RunStatus(
            status=status,
            submitted=self._submitted,
            total=len(self._arrivals),
            round_s=self._round_s,
            elapsed_s=elapsed_s,
            left_s=left_s(elapsed_s, ended(status), len(self._arrivals), self._arriving_s),
        )


def left_s(elapsed_s: float, done: int, total: int, arriving_s: float) -> float | None:
    """Real seconds until the end at the pace so far, at least until the last job arrives.

    None before any job has ended.
    """
    return max(elapsed_s * (total - done) / done, arriving_s - elapsed_s) if done else None


def ended(status: StatusView) -> int:
    """Number of jobs that will never run again."""
    return sum(count for state, count in status.jobs.items() if state in ENDED)
