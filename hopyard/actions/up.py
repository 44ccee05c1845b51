"""`hopyard up`: a stack that stays, on a data folder that outlives it."""

import asyncio
import time
from pathlib import Path

import msgspec

from hopyard.local.data_folder import DEFAULT, claimed, clock_origin, write_stack_file
from hopyard.local.processes import Restarts, Say
from hopyard.local.stack import Stack, StackSpec, Value, running_stack
from hopyard.local.stacks import listed
from schemas.catalogue import NOTHING_MORE, CatalogueFile
from schemas.cluster import ClusterFile

LOOK_EVERY_S = 1.0
RESTARTS = Restarts(most=6, within_s=120.0)


class UpSpec(msgspec.Struct, frozen=True, kw_only=True):
    cluster: ClusterFile
    catalogue: CatalogueFile = NOTHING_MORE
    """of the emulated world, beside the shipped entries"""
    scenario: str
    """its name; empty without one"""
    settings: dict[str, Value]
    """of the scenario"""
    data: Path
    speed: float
    port: int
    policy: str | None


async def run_up(spec: UpSpec, say: Say) -> None:
    """Runs until cancelled. Raises Claimed, NotReady, Died."""
    with claimed(spec.data):
        began = time.monotonic()
        async with running_stack(_stack_spec(spec), say) as stack:
            took_s = time.monotonic() - began
            say(f"up after {took_s:.1f} s: cluster {spec.cluster.name} at {stack.api_url}")
            say(f"to look at in a browser: {stack.api_url}/")
            say(f"logs in {spec.data / 'logs'}")
            if spec.data.resolve() != DEFAULT.resolve():
                say(f"elsewhere: HOPYARD_API_URL={stack.api_url} HOPYARD_NATS_URL={stack.nats.url}")
            with listed(spec.data):
                await _stay(stack, spec.data)


def _stack_spec(spec: UpSpec) -> StackSpec:
    return StackSpec(
        data=spec.data,
        cluster=spec.cluster,
        catalogue=spec.catalogue,
        clock_origin=clock_origin(spec.data, spec.speed, time.time()),
        speed=spec.speed,
        scenario=spec.scenario,
        settings=spec.settings,
        chosen={} if spec.policy is None else {"policy": spec.policy},
        api_port=spec.port,
        restarts=RESTARTS,
    )


async def _stay(stack: Stack, data: Path) -> None:
    """Keep stack.json true: a service that is started again has another process id."""
    written = None
    while True:
        current = stack.stack_file()
        if current != written:
            write_stack_file(data, current)
            written = current
        await asyncio.sleep(LOOK_EVERY_S)
