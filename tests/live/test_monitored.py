"""A real Prometheus scrapes a stack: every panel of the dashboard shows something, no alert's rule fails."""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hopyard.local.stack import Stack, free_ports
from hopyard.local.stack_settings import HOST
from tests.deploy.monitoring import RULES, panels, rules
from tests.live.live_builders import stack_and_client, submit_all
from tests.stack_watch import LIMIT_S

PROMETHEUS = shutil.which("prometheus")
LOOK_EVERY_S = 1.0


@pytest.mark.skipif(PROMETHEUS is None, reason="Prometheus is not installed (Debian: prometheus)")
async def test_every_panel_has_data_and_every_rule_can_be_evaluated(tmp_path: Path) -> None:
    async with (
        stack_and_client(tmp_path / "data") as (stack, client),
        scraped(tmp_path, stack) as monitor,
    ):
        await submit_all(client)
        await refused(stack)
        assert (
            await monitor.empty({target["expr"] for panel in panels() for target in panel["targets"]})
            == set()
        )
        assert {one["health"] for one in (await monitor.get("targets"))["activeTargets"]} == {"up"}
        assert await monitor.health() == {rule["alert"]: "ok" for rule in rules()}


async def refused(stack: Stack) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{stack.api_url}/v1/jobs") as answer:
        assert answer.status == 401


class Monitor:
    """Prometheus' own API."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def get(self, what: str, **asked: str) -> dict[str, Any]:
        async with self._session.get(f"{self._url}/api/v1/{what}", params=asked) as answer:
            said = await answer.json()
        assert said["status"] == "success", said
        return dict(said["data"])

    async def shows(self, expression: str) -> bool:
        """Whether there is something to draw: a series with a number."""
        found = (await self.get("query", query=expression))["result"]
        return any(one["value"][1] != "NaN" for one in found)

    async def empty(self, expressions: set[str]) -> set[str]:
        """Those that show nothing, also if one waits: some metrics come with the first job that ends."""
        ends = time.monotonic() + LIMIT_S
        while expressions and time.monotonic() < ends:
            expressions = {one for one in expressions if not await self.shows(one)}
            await asyncio.sleep(LOOK_EVERY_S)
        return expressions

    async def health(self) -> dict[str, str]:
        """Of each alert's rule, once it was evaluated."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                [group] = (await self.get("rules"))["groups"]
                found = {rule["name"]: rule["health"] for rule in group["rules"]}
                if "unknown" not in found.values():
                    return found
                await asyncio.sleep(LOOK_EVERY_S)

    async def up(self) -> bool:
        try:
            async with self._session.get(f"{self._url}/-/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False


@asynccontextmanager
async def scraped(folder: Path, stack: Stack) -> AsyncIterator[Monitor]:
    (port,) = free_ports(1)
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": "hopyard",
                "static_configs": [{"targets": [f"{HOST}:{each}" for each in stack.ports.values()]}],
            }
        ],
    }
    file = folder / "prometheus.json"
    file.write_text(json.dumps(config), "utf-8")  # which is YAML, too
    asks = (
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={HOST}:{port}",
    )
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(str(PROMETHEUS), *asks, stdout=log, stderr=log)
    try:
        async with aiohttp.ClientSession() as session:
            monitor = Monitor(session, f"http://{HOST}:{port}")
            async with asyncio.timeout(LIMIT_S):
                while not await monitor.up():
                    assert process.returncode is None, (folder / "prometheus.log").read_text("utf-8")
                    await asyncio.sleep(LOOK_EVERY_S)
            yield monitor
    finally:
        process.terminate()
        await process.wait()
