"""The stack as `docker compose up` runs it: jobs go through it, it is swapped, killed, loaded, stopped."""

import os
from collections.abc import AsyncIterator, Iterator, Sequence

import aiohttp
import pytest
from msgspec.structs import replace

from hopyard.api.client import Client
from hopyard.api.connect import connect
from loadgen.scenarios import arrivals, load_scenario
from schemas.base import Event
from schemas.events import (
    JobCompleted,
    JobProfiled,
    JobQueued,
    JobStarted,
    JobSubmitted,
    PlanPublished,
    PolicyChosen,
)
from schemas.ids import JobId
from schemas.jobs import JobFile
from schemas.views import PolicyChoice, StatusView
from shared.domain.audit import audit
from shared.domain.states import ENDED
from tests.container.compose_stack import SERVICES, TOKEN, ComposeStack, command
from tests.stack_watch import busy, log_of, until

pytestmark = pytest.mark.container

LONG = [arrival.job for arrival in arrivals(load_scenario("tiny"))]
SHORT = [replace(job, samples=(job.samples or 0.0) / 2) for job in LONG]
LIFE = (JobSubmitted, JobProfiled, JobQueued, JobStarted, JobCompleted)


HEAVY = ("duckdb", "highspy", "ortools", "typer")
FIND = "import sys; from importlib.util import find_spec; print(*filter(find_spec, sys.argv[1:]))"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeStack]:
    """All images, and the stack that is not up yet."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("HOPYARD_", "COMPOSE_")):
                patch.delenv(name)
        stack = ComposeStack(tmp_path_factory.mktemp("compose"))
        stack.build()
        yield stack


@pytest.fixture(scope="module")
def stack(built: ComposeStack, request: pytest.FixtureRequest) -> Iterator[ComposeStack]:
    """The stack, up and healthy: one for all tests, which leave it without jobs."""
    with built.up(failed=lambda: request.session.testsfailed):
        yield built


@pytest.fixture
async def client(stack: ComposeStack) -> AsyncIterator[Client]:
    async with connect(stack.url, TOKEN) as client:
        yield client


async def submit(client: Client, jobs: Sequence[JobFile], *, key: str) -> list[JobId]:
    """All of them at once."""
    submitted = [await client.submit(job, f"{key}-{number}") for number, job in enumerate(jobs)]
    return [each.job_id for each in submitted]


def drained(status: StatusView) -> bool:
    return all(state in ENDED for state, count in status.jobs.items() if count)


async def planned_by(client: Client, policy: str) -> None:
    """Until the last plan is that policy's."""
    await until(client, lambda status: status.plan is not None and status.plan.policy == policy)


async def running(client: Client) -> set[JobId]:
    return {job.job_id for job in (await client.jobs(states=["running"])).jobs}


async def ended_well(client: Client, jobs: list[JobId]) -> list[Event]:
    """The log of everything so far, once all has ended: no rule is broken, and these jobs are complete.

    The log has a job before the monitor, whose status it is, has read of it.
    """
    submitted = sum(isinstance(event, JobSubmitted) for event in await log_of(client))
    await until(client, lambda status: drained(status) and sum(status.jobs.values()) >= submitted)
    events = await log_of(client)
    assert audit(events, drained=True) == []
    completed = [event.job_id for event in events if isinstance(event, JobCompleted)]
    assert set(jobs) <= set(completed)
    return events


@pytest.mark.parametrize(
    ("image", "own"),
    [
        ("admission", []),
        ("profiler", []),
        ("estimator", ["duckdb"]),
        ("planner", ["highspy", "ortools"]),
        ("placer", []),
        ("monitor", ["duckdb"]),
        ("agent", []),
        ("cli", ["typer"]),
    ],
)
def test_an_image_has_only_the_libraries_of_its_part(built: ComposeStack, image: str, own: list[str]) -> None:
    assert built
    found = command("docker", "run", "--rm", "--entrypoint", "python", f"hopyard/{image}", "-c", FIND, *HEAVY)
    assert found.split() == own


@pytest.mark.parametrize("image", ["admission", "cli"])
def test_nothing_runs_as_root(built: ComposeStack, image: str) -> None:
    assert built
    assert command("docker", "run", "--rm", "--entrypoint", "id", f"hopyard/{image}", "-u").strip() != "0"


async def test_a_job_goes_in_at_one_end_and_trains_at_the_other(client: Client) -> None:
    [job] = await submit(client, SHORT[:1], key="one")
    events = await ended_well(client, [job])
    kinds = [type(event) for event in events if getattr(event, "job_id", None) == job]
    assert [kind for kind in kinds if kind in LIFE] == list(LIFE)


async def test_the_output_of_a_job_comes_from_the_agents_over_the_bus(client: Client) -> None:
    [job_id] = await submit(client, SHORT[:1], key="prints")
    lines = [line async for line in client.output(job_id, newest=1_000, follow=True)]
    assert not [line for line in lines if line.problem]
    assert lines[0].text.startswith("emulated: ")
    assert any(line.text.startswith("complete: ") for line in lines)


async def test_the_page_is_in_the_image(client: Client) -> None:
    async with aiohttp.ClientSession() as session:
        for name in ("", "page/app.js", "page/style.css", "page/uplot.min.js"):
            async with session.get(f"{client.url}/{name}") as answer:
                assert answer.status == 200, name


async def test_every_agent_stands_for_a_node_of_its_own(client: Client) -> None:
    nodes = (await client.nodes()).nodes
    assert [node.state for node in nodes] == ["alive"] * 4


async def test_an_agent_that_is_added_takes_the_node_that_one_left(
    client: Client, stack: ComposeStack
) -> None:
    stack.run("up", "--detach", "--no-deps", "--scale", "agent=3", "agent")
    await until(client, lambda status: status.nodes.get("lost", 0) == 1)
    stack.run("up", "--detach", "--no-deps", "--scale", "agent=4", "agent")
    await until(client, lambda status: status.nodes["alive"] == 4)


async def test_the_policy_is_changed_while_jobs_run(client: Client) -> None:
    jobs: list[JobId] = []
    chosen = ["sia", "gavel", "tiresias", "hops"]
    for policy in chosen:
        jobs += await submit(client, SHORT, key=f"change-to-{policy}")
        await until(client, busy)
        await client.set_policy(PolicyChoice(policy=policy))
        await planned_by(client, policy)
    events = await ended_well(client, jobs)
    assert [event.policy for event in events if isinstance(event, PolicyChosen)] == chosen


async def test_jobs_run_on_while_one_planner_takes_the_place_of_another(
    client: Client, stack: ComposeStack
) -> None:
    jobs = await submit(client, LONG, key="swap")
    await until(client, busy)
    stack.run("stop", "planner")
    assert await running(client)
    stack.run("up", "--detach", "--no-deps", "planner", environ={"HOPYARD_POLICY": "sia"})
    await planned_by(client, "sia")
    events = await ended_well(client, jobs)
    plans = [event.policy for event in events if isinstance(event, PlanPublished)]
    assert plans[-1] == "sia"


async def test_every_part_is_killed_in_turn_under_load_and_every_job_completes(
    client: Client, stack: ComposeStack
) -> None:
    jobs: list[JobId] = []
    for service in (*SERVICES, "nats"):
        status = await until(client, lambda status: busy(status) or drained(status))
        if not busy(status):
            jobs += await submit(client, SHORT, key=f"before-{service}")
            await until(client, busy)
        stack.restart_killed(service)
    await ended_well(client, jobs)


async def test_the_load_profile_runs_a_scenario_to_its_end(client: Client, stack: ComposeStack) -> None:
    stack.run("--profile", "load", "up", "--detach", "loadgen")
    [loadgen] = stack.containers("loadgen")
    assert command("docker", "wait", loadgen).strip() == "0", command("docker", "logs", loadgen)
    printed = command("docker", "logs", loadgen).split()
    assert printed[: printed.index("took")] == ["submitted", "8", "refused", "0", "completed", "8"]
    await ended_well(client, [])


async def test_every_container_ends_by_itself_when_it_is_stopped(stack: ComposeStack) -> None:
    stack.run("stop")
    assert {name: code for name, code in stack.exit_codes().items() if code} == {}
