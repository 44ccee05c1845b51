"""Ranks in containers: started, spoken with, stopped and killed through a real engine."""

from pathlib import Path

import pytest

from services.agent.tasks import Failed, NotStarted, Saved, Stopped
from tests.container.compose_stack import command
from tests.services.agent.process.process_bench import P1, order, running_node

pytestmark = pytest.mark.container
IMAGE = "python:3.11-slim"


def containers() -> list[str]:
    return [name for name in command("docker", "ps", "--all", "--format={{.Names}}").split() if "p1" in name]


@pytest.fixture(autouse=True)
def image() -> None:
    if not command("docker", "images", "--quiet", IMAGE):
        command("docker", "pull", "--quiet", IMAGE)


async def test_a_gang_in_containers_trains_and_is_stopped() -> None:
    async with running_node() as node:
        words = ("python", "script.py", "print=hello", "forever")
        await node.trained(order(command=words, image=IMAGE, gpus=2, working_directory="/tmp", memory=2e8))
        await node.until(lambda: node.of(Saved) or node.last())
        assert sorted(containers()) == ["hopyard-p1-0", "hopyard-p1-1"]
        node.runner.stop(P1)
        assert isinstance(await node.ended(), Stopped)
        assert set(node.lines(0)) == {"hello"}
        assert containers() == []


async def test_a_process_that_ignores_its_stop_ends_with_its_container() -> None:
    async with running_node() as node:
        words = ("python", "script.py", "deaf")
        await node.trained(order(command=words, image=IMAGE, grace_s=1.0, working_directory="/tmp"))
        node.runner.stop(P1)
        assert await node.ended() == Stopped(P1, 0.0)
        assert containers() == []


async def test_an_image_that_is_not_there_is_named() -> None:
    async with running_node() as node:
        await node.trained(order(command=("python", "script.py"), image="localhost:1/no/such/image"))
        last = await node.ended()
        assert isinstance(last, Failed)
        assert "no/such/image" in last.reason


async def test_an_engine_that_is_away_is_no_fault_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    async with running_node() as node:
        await node.trained(order(command=("python", "script.py"), image=IMAGE))
        last = await node.ended()
        assert isinstance(last, NotStarted)
        assert last.reason.endswith("docker does not answer")


async def test_more_memory_than_the_job_asked_for_is_its_own_failure() -> None:
    async with running_node() as node:
        words = ("python", "-c", "bytearray(300_000_000)")
        await node.trained(order(command=words, image=IMAGE, memory=64e6))
        last = await node.ended()
        assert isinstance(last, Failed), last
        assert (last.reason.splitlines()[0], last.lasting) == (
            "rank 0: more main memory than the job asked for", True,
        )  # fmt: skip
        assert containers() == []
