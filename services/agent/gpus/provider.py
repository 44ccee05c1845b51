"""The node provider `this-machine`: the agent stands for the machine on which it runs."""

import socket
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import structlog

from schemas.cluster import Node
from schemas.settings import Settings
from services.agent.gpus.machine import Machine, machine_of, node_of
from services.agent.gpus.watching import GpuWatch
from services.agent.work.claim import Claim, claim
from services.agent.work.nodes import AgentNode, UnknownNode
from shared.runtime.service import Ports

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""file with the id of this boot, in whose name the claim is held: the agent's next life has the same one"""
NATS_PORT = 4222
LEASES_WAITED = 2
"""leases to wait before another boot's claim counts as another machine's: this machine may have rebooted"""

log = structlog.get_logger()


async def this_machine(settings: Settings, ports: Ports) -> AgentNode:
    """A `NodeProvider`. Raises UnfitMachine, InvalidFile, UnknownNode."""
    machine = machine_of(settings)
    node = node_of(machine.file, address_towards(settings.nats_url))
    _log(machine, node)
    held = await _claimed(node, settings, ports)
    if not machine.uuids:
        return AgentNode(node=node, life=uuid4().hex, tasks=(held.keep,))
    watch = GpuWatch(machine.uuids, ports.clock, ports.offload.lane("gpus"))
    seen = await watch.first()
    return AgentNode(node=node, life=uuid4().hex, tasks=(held.keep, watch.run), seen=seen)


def address_towards(urls: str) -> str:
    """The address from which this machine reaches the first of these NATS servers; empty: it cannot."""
    server = urlsplit(urls.split(",", maxsplit=1)[0].strip())
    try:
        with socket.socket(_family(server.hostname or ""), socket.SOCK_DGRAM) as probe:
            probe.connect((server.hostname, server.port or NATS_PORT))  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _boot() -> str:
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""


async def _claimed(node: Node, settings: Settings, ports: Ports) -> Claim:
    """Claim the node. Raises UnknownNode: another machine has its name.

    Otherwise the agents of the two machines would end each other again and again.
    """
    holder = _boot() or uuid4().hex
    lease_s = settings.node_lease_real_s
    while True:
        try:
            async with ports.clock.within(LEASES_WAITED * lease_s):
                return await claim(ports.bus, ports.clock, (node,), holder=holder, lease_s=lease_s)
        except TimeoutError:
            if ports.bus.connected():
                reason = f"another machine stands for {node.node_id}; --name gives this one another name"
                raise UnknownNode(reason) from None


def _log(machine: Machine, node: Node) -> None:
    if machine.left_out:
        log.warning("GPUs of other types are left out", gpus=machine.left_out)
    if machine.visible and not machine.uuids:
        log.warning("GPUs are not watched: their driver cannot be asked", gpus=node.gpus)
    log.info("this machine", node=node.node_id, gpus=node.gpus, type=node.gpu_type, address=node.address)
