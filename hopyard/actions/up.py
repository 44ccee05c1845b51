"""`hopyard up`: runs a stack until it is stopped, on a data folder that outlives it."""

import asyncio
import contextlib
import sys
import time
from pathlib import Path

import msgspec

from hopyard.failures import Invalid
from hopyard.local.data_folder import DEFAULT, PORTS, claimed, clock_origin, last_cluster, write_stack_file
from hopyard.local.processes import Restarts, Say
from hopyard.local.stack import Stack, running_stack
from hopyard.local.stack_settings import SERVICES, Listen, StackSpec, Value, cluster_name
from hopyard.local.stacks import listed
from schemas.catalogue import NOTHING_MORE, CatalogueFile
from schemas.cluster import ClusterFile
from schemas.instances import INSTANCES_MAX
from shared.runtime.addresses import loopback
from shared.runtime.process.nats_server import EVERYWHERE

LOOK_EVERY_S = 1.0
RESTARTS = Restarts(most=6, within_s=120.0)


class UpSpec(msgspec.Struct, frozen=True, kw_only=True):
    cluster: ClusterFile | None
    """None: agents join from elsewhere"""
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
    nats: Listen = Listen()
    nats_servers: int = 1
    instances: dict[str, int] = {}
    """number of instances by service; a service that is not named has one"""


async def run_up(spec: UpSpec, say: Say) -> None:
    """Runs until cancelled. Raises Claimed, NotReady, Died."""
    with claimed(spec.data), listed(spec.data, say):
        began = time.monotonic()
        stack_spec, before = _stack_spec(spec), last_cluster(spec.data)
        if before not in {"", cluster_name(stack_spec)}:
            say(
                f"the stack of {spec.data} had cluster {before}; nodes of it that this one lacks are lost "
                "now, until `hopyard node remove` forgets them"
            )
        async with running_stack(stack_spec, say) as stack:
            took_s = time.monotonic() - began
            say(f"up after {took_s:.1f} s: cluster {cluster_name(stack_spec)} at {stack.api_url}")
            say(f"page for a browser: {on_terminal(stack)}")
            say(f"logs in {spec.data / 'logs'}")
            if sys.stderr.isatty():
                say("`hopyard submit FILE` in another terminal submits a job; Ctrl-C stops the stack")
            if spec.cluster is None:
                say(f"its nodes join by: {_how_to_join(spec, stack)}")
            if spec.data.resolve() != DEFAULT.resolve():
                say(f"elsewhere: HOPYARD_API_URL={stack.api_url} HOPYARD_NATS_URL={stack.nats.url}")
            await _stay(stack, spec.data)


def on_terminal(stack: Stack) -> str:
    """The page's address; on a terminal with its token, which should not get into a log."""
    return stack.page_link() if sys.stderr.isatty() else f"{stack.api_url}/ (`hopyard page` adds a token)"


def listening(text: str) -> Listen:
    """The address of --listen. Raises Invalid."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not (port.isascii() and port.isdecimal() and 0 < int(port) < PORTS):
        raise Invalid(f"--listen {text}: it takes HOST:PORT, as 0.0.0.0:4222")
    return Listen(host=host, port=int(port))


def instances(text: str) -> dict[str, int]:
    """What --instances says: a number for all services, or some as `planner=2,placer=3`. Raises Invalid."""
    given = (
        dict.fromkeys(SERVICES, text) if "=" not in text else dict(_pair(each) for each in text.split(","))
    )
    wrong = [name for name in given if name not in SERVICES]
    if wrong or any(not _may_be(number) for number in given.values()):
        raise Invalid(
            f"--instances {text}: it takes a number from 1 to {INSTANCES_MAX}, or some as planner=2,placer=2 "
            f"of {', '.join(SERVICES)}"
        )
    return {name: int(number) for name, number in given.items()}


def _pair(text: str) -> tuple[str, str]:
    name, _, number = text.partition("=")
    return name.strip(), number.strip()


def _may_be(number: str) -> bool:
    return number.isascii() and number.isdecimal() and 1 <= int(number) <= INSTANCES_MAX


def _how_to_join(spec: UpSpec, stack: Stack) -> str:
    here = spec.nats.host not in EVERYWHERE
    address = stack.nats.url if here else f"nats://THIS-MACHINE:{stack.nats.port}"
    file = "" if loopback(spec.nats.host) else " --credentials FILE (of `hopyard node admit NODE`)"
    return f"hopyard agent --join {address}{file}"


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
        nats=spec.nats,
        instances=spec.instances,
        nats_servers=spec.nats_servers,
        restarts=RESTARTS,
    )


async def _stay(stack: Stack, data: Path) -> None:
    """Keep stack.json up to date: a restarted service has another process id."""
    written = None
    while True:
        current = stack.stack_file()
        if current != written:
            with contextlib.suppress(OSError):  # as on a full disk: tried again
                write_stack_file(data, current)
                written = current
        await asyncio.sleep(LOOK_EVERY_S)
