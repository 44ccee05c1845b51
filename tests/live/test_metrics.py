"""What services print at `/metrics`, by Prometheus' own parser: all that alerts and the dashboard ask for."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hopyard.local.stack import Stack
from tests.deploy.monitoring import metrics_named
from tests.live.live_builders import stack_and_client, submit_all
from tests.stack_watch import LIMIT_S, busy, until

KINDS = {"_total": "counter", "_bucket": "histogram", "_count": "histogram", "_sum": "histogram"}


@pytest.mark.asyncio
async def test_every_metric_that_an_alert_or_the_dashboard_asks_for_is_there(tmp_path: Path) -> None:
    async with stack_and_client(tmp_path / "data") as (stack, client):
        await submit_all(client)
        await until(client, busy)
        wanted, found = metrics_named(), await printed(stack)
        async with asyncio.timeout(LIMIT_S):  # some come with the first job that ends
            while wanted - found.keys():
                await asyncio.sleep(1.0)
                found = await printed(stack)
    assert {name for name, kind in found.items() if kind != kind_of(name)} == set()


async def printed(stack: Stack) -> dict[str, str]:
    """The kind of each of our metrics, by the name of its samples."""
    found: dict[str, str] = {}
    async with aiohttp.ClientSession() as session:
        for port in stack.ports.values():
            async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                for family in text_string_to_metric_families(await answer.text()):
                    found |= {sample.name: family.type for sample in family.samples}
    return {name: kind for name, kind in found.items() if name.startswith("hopyard_")}


def kind_of(name: str) -> str:
    """What the ending of a name promises. A histogram tells when each of its series began, too."""
    if name.endswith("_created"):
        return "gauge"
    return next((kind for end, kind in KINDS.items() if name.endswith(end)), "gauge")
