"""Nodes that run everything at half speed are named, and no node of a healthy cluster is."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from loadgen.scenarios import load_scenario
from loadgen.simulation import simulate
from loadgen.stack import Runners
from loadgen.world.emulated import EmulatedWorld
from schemas.base import Event
from schemas.cluster import Node
from schemas.ids import NodeId, PlacementId
from schemas.jobs import JobSpec
from schemas.measurements import Stretch
from schemas.placement import Gang
from schemas.settings import Settings
from services.agent.work.emulated import EmulatedRunner
from services.monitor.core import Monitor
from shared.runtime.clock import Clock

HALF = 0.5
LOOK_EVERY_S = 360.0


class Slowed(EmulatedWorld):
    """A gang with a slow node runs at half its speed."""

    def __init__(self, seed: int, slow: Sequence[str]) -> None:
        super().__init__(seed)
        self._slow = slow

    def stretch(self, spec: JobSpec, nodes: Sequence[Node], gang: Gang, *, key: str, index: int) -> Stretch:
        found = super().stretch(spec, nodes, gang, key=key, index=index)
        slowed = any(node.node_id in self._slow for node in nodes)
        return replace(found, throughput=found.throughput * HALF) if slowed else found


def on_slow(slow: Sequence[str]) -> Runners:
    def runner(settings: Settings, clock: Clock, _: NodeId) -> tuple[EmulatedRunner, tuple[PlacementId, ...]]:
        found = EmulatedRunner(
            Slowed(settings.seed, slow),
            clock,
            startup_s=settings.startup_s,
            checkpoint_s=settings.checkpoint_s,
            observe_every_s=settings.observe_every_s,
        )
        return found, ()

    return runner


def named(events: Sequence[Event]) -> dict[NodeId, list[float]]:
    """The nodes that a monitor names, looked at every six minutes, with the times."""
    monitor = Monitor(lease_s=1e9, interruptions_max=3, raqlr_window_s=3600.0, speed=1.0)
    found: dict[NodeId, list[float]] = {}
    look_at = LOOK_EVERY_S
    for event in events:
        while look_at <= event.at:
            for node, speed in monitor.cluster(look_at).speeds().items():
                if speed.slow:
                    found.setdefault(node, []).append(look_at)
            look_at += LOOK_EVERY_S
        monitor.handle(event, event.at)
    return found


@pytest.mark.parametrize("slow", ["titan-xp-1", "gtx-1080-ti-0", "rtx-3090-yk8100-0"])
def test_the_node_at_half_speed_is_named_and_no_other(slow: str) -> None:
    run = simulate(load_scenario("hops-64"), runners=on_slow([slow]))
    found = named(run.events)
    assert found.keys() == {slow}
    assert min(found[NodeId(slow)]) <= 4 * 3600.0


@pytest.mark.parametrize(
    ("scenario", "policy"), [("tiny", "hops"), ("hops-64", "hops"), ("hops-64", "gavel"), ("jps-15", "jps")]
)
def test_no_node_of_a_healthy_cluster_is_named(scenario: str, policy: str) -> None:
    assert named(simulate(load_scenario(scenario), policy=policy).events) == {}
