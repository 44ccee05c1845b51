"""From timed all-reduces to the bandwidths of eq. 2; and the command's way through the agents."""

import asyncio

import msgspec
import numpy as np
import pytest

from schemas.base import Message, Question
from schemas.calibration import AllReduceMeeting, AllReduceTimes, Calibration, Path, Ring
from schemas.cluster import Node
from schemas.codec import Malformed
from schemas.events import StartOrdered
from schemas.ids import JobId, NodeId, PlacementId
from schemas.placement import Gang
from schemas.questions import Calibrate, Estimates, JoinAllReduce, OpenAllReduce, Refused
from schemas.settings import Settings
from services.agent.build import build as build_agent
from services.estimator.build import build
from services.estimator.store.contract import Bandwidth
from services.estimator.theory.calibration import REPEATS, SIZES, Timing, bandwidths, between, inside, merged
from services.estimator.theory.paths import exchange, paths_of
from services.estimator.work.measuring import measured
from shared.domain.iteration import law_of
from shared.runtime.bus.contract import Answer, Questions
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.service import Ports, Service
from shared.runtime.shell.shell import Shell
from shared.runtime.shell.virtual import run
from shared.runtime.tasks import LOOP_TASKS
from tests.services.estimator.estimator_builders import GIGA, joined, node, profiled, question, submitted

LINK, NETWORK = 4e9, 5e8


def counts(rings: list[Ring]) -> list[list[tuple[str, int]]]:
    return [[(str(one.node_id), gpus) for one, gpus in ring.members] for ring in rings]


def timed(ring: Ring, *, link: float = LINK, network: float = NETWORK, latency_s: float = 0.0) -> Timing:
    """As eq. 2 has it, to the letter, and a latency."""
    share = (ring.gpus - 1) / ring.gpus
    rows = [latency_s + (size / network if ring.distributed else size * share / link) for size in SIZES]
    return Timing(ring, AllReduceTimes(seconds=tuple((one,) * REPEATS for one in rows)))


def test_to_the_letter_a_gang_has_one_bandwidth_and_no_latency() -> None:
    nodes = [node("a0"), node("a1")]
    rings = [*inside(nodes), *between(nodes)]
    found = bandwidths([timed(ring, latency_s=0.01) for ring in rings], now=7.0)[node().gpu_type]
    [link, network] = paths_of(node(), found, law_of("bandwidth"))
    assert len(paths_of(node(), found)) > 2
    assert (link.bandwidth, network.bandwidth) == (found.link, found.network)
    assert (link.latency_s, network.latency_s) == (0.0, 0.0)


def test_a_node_is_measured_with_two_four_and_all_of_its_gpus() -> None:
    assert counts(inside([node(gpus=6)])) == [[("a0", 2)], [("a0", 4)], [("a0", 6)]]


def test_a_node_with_one_gpu_has_no_paths_of_its_own() -> None:
    assert inside([node(gpus=1)]) == []


def test_a_node_with_too_few_gpus_takes_no_other_node_s_place() -> None:
    single = [node(f"a{number}", gpus=1) for number in range(4)]
    assert counts(inside([*single, node("a4", gpus=2)])) == [[("a4", 2)]]
    withheld = node("a0", gpus=0)
    assert counts(between([withheld, *single[1:3]])) == [[("a1", 1), ("a2", 1)]]


def test_nodes_of_a_type_are_measured_in_pairs_and_none_twice() -> None:
    nodes = [node(f"a{k}", gpus=2) for k in range(3)] + [node("b0", "B", gpus=2)]
    assert counts(between(nodes)) == [[("a0", 1), ("a1", 1)], [("a0", 2), ("a1", 2)]]


def test_of_unlike_nodes_of_a_type_the_largest_are_measured_in_pairs_of_a_size() -> None:
    """So rings of every size are timed: a small node beside a large one shows only small rings."""
    nodes = [node(f"a{k}", gpus=[4, 1][k % 2]) for k in range(6)] + [node("a6", gpus=4)]
    assert counts(inside(nodes)) == [[(name, gpus)] for name in ("a0", "a2", "a4", "a6") for gpus in (2, 4)]
    pairs = [("a0", "a2"), ("a4", "a6")]
    assert counts(between(nodes)) == [[(a, gpus), (b, gpus)] for a, b in pairs for gpus in (1, 2, 4)]


def test_times_by_equation_2_give_its_bandwidths_back() -> None:
    nodes = [node("a0"), node("a1")]
    found = bandwidths([timed(ring) for ring in [*inside(nodes), *between(nodes)]], now=7.0)[node().gpu_type]
    assert (found.link, found.network) == pytest.approx((LINK, NETWORK))
    assert [found.error, found.at] == pytest.approx([0.0, 7.0], abs=1e-9)


def test_a_path_that_could_not_be_measured_again_keeps_its_bandwidth() -> None:
    nodes = [node("a0", gpus=4), node("a1", gpus=4)]
    first = bandwidths([timed(ring) for ring in [*inside(nodes), *between(nodes)]], now=1.0)[node().gpu_type]
    [small, _] = inside(nodes[:1])
    again = bandwidths([timed(small, link=2 * LINK)], now=2.0)[node().gpu_type]
    found = merged(first, again)
    assert (found.link, found.network, found.at) == pytest.approx((2 * LINK, NETWORK, 2.0))
    speeds = {(path.distributed, path.gpus): path.bandwidth for path in found.paths}
    expected = {(False, 2): 2 * LINK, (False, 4): LINK} | {(True, gpus): NETWORK for gpus in (1, 2, 4)}
    assert speeds == pytest.approx(expected)
    assert merged(None, again) == again


def test_every_measurement_weighs_by_its_relative_error() -> None:
    """Half of them at speed 1, half at 3: 1/b = (1 + 9) / (1 + 3)."""
    [ring] = inside([node(gpus=2)])
    found = bandwidths([timed(ring, link=1e9), timed(ring, link=3e9)], now=0.0)[node().gpu_type]
    assert found.link == pytest.approx(2.5e9)
    assert found.network is None
    assert found.error == pytest.approx((0.6 + 0.2) / 2)


def test_every_shape_of_gang_has_its_own_path() -> None:
    pair = [node("a0", gpus=4), node("a1", gpus=4)]
    two, four = inside([pair[0]])
    one_each, *_ = between(pair)
    timings = [timed(two), timed(four, link=LINK / 2, latency_s=1e-3), timed(one_each, latency_s=2e-3)]
    found = bandwidths(timings, now=0.0)[node().gpu_type]
    assert [(path.distributed, path.gpus) for path in found.paths] == [(False, 2), (False, 4), (True, 1)]
    assert [path.bandwidth for path in found.paths] == pytest.approx([LINK, LINK / 2, NETWORK])
    assert [path.latency_s for path in found.paths] == pytest.approx([0.0, 1e-3, 2e-3], abs=1e-9)
    assert found.error == pytest.approx(0.0, abs=1e-9)


def test_no_path_has_a_negative_latency() -> None:
    [ring] = inside([node(gpus=2)])
    found = bandwidths([timed(ring, latency_s=-1e-3)], now=0.0)[node().gpu_type]
    assert [path.latency_s for path in found.paths] == [0.0]


def test_paths_are_those_of_the_sizes_that_were_timed() -> None:
    [ring] = inside([node(gpus=2)])
    sizes = tuple(size / 32 for size in SIZES)
    seconds = tuple((size / 2 / LINK,) * REPEATS for size in sizes)
    found = bandwidths([Timing(ring, AllReduceTimes(seconds=seconds, sizes=sizes))], now=0.0)
    assert found[node().gpu_type].link == pytest.approx(LINK)


def test_no_path_is_the_faster_the_more_it_moves() -> None:
    [ring] = inside([node(gpus=2)])
    falling = tuple((seconds,) * REPEATS for seconds in (1e-3, 1e-3, 1e-3, 0.9e-3))
    found = bandwidths([Timing(ring, AllReduceTimes(seconds=falling))], now=0.0)[node().gpu_type]
    assert [path.bandwidth > 0 for path in found.paths] == [True]
    assert [path.latency_s for path in found.paths] == [0.0]


@pytest.mark.parametrize("digit", range(1, 10))
def test_a_path_on_which_nothing_takes_time_has_a_bandwidth_that_messages_can_have(digit: int) -> None:
    """Each size takes as long as the next, so only rounding tells 1 / B from 0."""
    [ring] = inside([node(gpus=2)])
    times = AllReduceTimes(seconds=((digit * 1e-7,) * REPEATS,) * len(SIZES))
    found = bandwidths([Timing(ring, times)], now=0.0)[node().gpu_type]
    assert msgspec.convert(msgspec.to_builtins(found.paths), tuple[Path, ...]) == found.paths


def test_bandwidths_of_the_form_without_paths_still_count() -> None:
    old = Bandwidth(link=3 * GIGA, network=None, at=0.0, measurements=4, error=0.1)
    assert [path.bandwidth / GIGA for path in paths_of(node(), old)] == [3, 1]


def test_a_gang_takes_the_path_nearest_to_its_own_size() -> None:
    """In ratio; what was never measured is as the cluster file states it."""
    paths = tuple(
        Path(distributed=False, gpus=gpus, latency_s=gpus * 1e-6, bandwidth=gpus * GIGA) for gpus in (2, 8)
    )
    measured = Bandwidth(link=GIGA, network=None, at=0.0, measurements=2, error=0.0, paths=paths)
    stated = node()
    latency_s, bandwidth = exchange(
        [paths_of(stated, measured), paths_of(stated, None)],
        kind=np.array([0, 0, 0, 0, 0, 1]),
        distributed=np.array([False, False, False, False, True, False]),
        fewest=np.array([1, 3, 5, 16, 4, 8]),
        gpus=np.array([1, 3, 5, 16, 8, 8]),
    )
    assert (bandwidth / GIGA).tolist() == [2, 2, 8, 8, 1, 10]
    assert latency_s.tolist() == pytest.approx([2e-6, 2e-6, 8e-6, 8e-6, 0, 0])


def test_over_several_nodes_the_node_with_the_fewest_gpus_decides_and_a_ring_takes_a_step_a_gpu() -> None:
    """Path of M = 2 · fewest GPUs: a microsecond a step beyond it, 1 / B · ((N − 1) / N) / ((M − 1) / M)."""
    latencies_s = {1: 9e-6, 4: 1e-6, 8: 15e-6}
    paths = tuple(
        Path(distributed=True, gpus=gpus, latency_s=latency_s, bandwidth=gpus * GIGA)
        for gpus, latency_s in latencies_s.items()
    )
    measured = Bandwidth(link=None, network=GIGA, at=0.0, measurements=3, error=0.0, paths=paths)
    latency_s, bandwidth = exchange(
        [paths_of(node(), measured)],
        kind=np.zeros(4, dtype=np.int64),
        distributed=np.ones(4, dtype=np.bool_),
        fewest=np.array([4, 1, 4, 8]),
        gpus=np.array([8, 9, 16, 64]),
    )
    assert latency_s.tolist() == pytest.approx([1e-6, 16e-6, 9e-6, 63e-6])
    whole = [4, 1 * (1 / 2) / (8 / 9), 4 * (7 / 8) / (15 / 16), 8 * (15 / 16) / (63 / 64)]
    assert (bandwidth / GIGA).tolist() == pytest.approx(whole)


def test_no_ring_smaller_than_the_measured_one_has_a_negative_latency() -> None:
    paths = (
        Path(distributed=True, gpus=4, latency_s=1e-6, bandwidth=GIGA),
        Path(distributed=True, gpus=8, latency_s=15e-6, bandwidth=GIGA),
    )
    measured = Bandwidth(link=None, network=GIGA, at=0.0, measurements=2, error=0.0, paths=paths)
    one = np.ones(1, dtype=np.int64)
    latency_s, _ = exchange(
        [paths_of(node(), measured)], 0 * one, one.astype(np.bool_), fewest=3 * one, gpus=6 * one
    )
    assert latency_s.tolist() == [0.0]


def test_where_nothing_was_measured_or_to_the_letter_a_ring_is_as_equation_2_has_it() -> None:
    path = Path(distributed=True, gpus=1, latency_s=1e-6, bandwidth=9 * GIGA)
    measured = Bandwidth(link=None, network=2 * GIGA, at=0.0, measurements=1, error=0.0, paths=(path,))
    latency_s, bandwidth = exchange(
        [paths_of(node(), None), paths_of(node(), measured, law_of("bandwidth"))],
        kind=np.array([0, 0, 1]),
        distributed=np.array([True, True, True]),
        fewest=np.array([1, 8, 1]),
        gpus=np.array([2, 64, 9]),
    )
    assert latency_s.tolist() == [0, 0, 0]
    assert (bandwidth / GIGA).tolist() == [1, 1, 2]


# ---- through the bus, on emulated nodes


def titan(number: int) -> Node:
    return Node(
        node_id=NodeId(f"titan-{number}"),
        gpu_type=node("x", "titan-xp").gpu_type,
        gpus=8,
        server="generic",
        link_bandwidth=5e9,
        network_bandwidth=3e9,
    )


async def calibrated(settings: Settings, *busy: Node, nodes: int = 2) -> tuple[Message, Message, Message]:
    """Estimates of a pair before and after the nodes were asked to measure; and what was said of it."""
    net, titans = MemoryBus(LoopClock()), {f"titan-{number}": titan(number) for number in range(nodes)}
    bus = net.client("test")
    await bus.publish([joined(one) for one in titans.values()] + [_order(one) for one in busy])
    await bus.publish([submitted(), profiled(gpu_types=["titan-xp"])])
    clients = {name: net.client(name) for name in ("estimator", *titans)}
    ports = {name: Ports(bus=one, clock=LoopClock()) for name, one in clients.items()}
    services: dict[str, Service] = {
        "estimator": build(settings, ports["estimator"]),
        **{name: build_agent(settings, ports[name], one, "1") for name, one in titans.items()},
    }
    running = [asyncio.create_task(Shell(one, ports[name], settings).run()) for name, one in services.items()]
    await asyncio.sleep(1.0)
    pair = question(nodes=("titan-0", "titan-1"), start=(0, 2), node=(0, 1), gpus=(8, 8))
    before = await bus.ask(pair, 5.0)
    said = await bus.ask(Calibrate(measure=not settings.calibrate), 1000.0)
    if settings.calibrate:
        await asyncio.sleep(1000.0)
        said = await bus.ask(Calibrate(measure=False), 5.0)
    after = await bus.ask(pair, 5.0)
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await net.close()
    return before, said, after


def _order(one: Node) -> StartOrdered:
    return StartOrdered(
        at=0.5,
        node_id=one.node_id,
        placement_id=PlacementId("p1"),
        job_id=JobId("j1"),
        spec=submitted().spec,
        gang=Gang.of({one.node_id: 1}),
        nodes=(one,),
        samples_done=0.0,
        learning_rate=None,
    )


def throughput(reply: Message) -> float:
    assert isinstance(reply, Estimates)
    return float(np.frombuffer(reply.throughput, dtype="<f8")[0])


@pytest.mark.parametrize("by_itself", [False, True])
def test_bandwidths_are_measured_on_the_nodes_and_used_from_then_on(*, by_itself: bool) -> None:
    """The cluster file's 3 GB/s is what full servers reach; a few GPUs on each reach less."""
    before, said, after = run(lambda: calibrated(Settings(calibrate=by_itself)))
    assert isinstance(said, Calibration)
    [row] = said.rows
    assert row.measurements == (3 * 2 + 4) * len(SIZES) * REPEATS
    assert row.network is not None
    assert 1.5e9 < row.network < 2.95e9
    assert throughput(after) < throughput(before)


def test_a_node_in_use_is_left_out() -> None:
    async def story() -> Message:
        _, said, _ = await calibrated(Settings(startup_s=1e6), titan(0))
        return said

    said = run(story)
    assert isinstance(said, Calibration)
    assert "free" in said.left_out[NodeId("titan-0")]
    assert [row.network for row in said.rows] == [None]


def test_in_place_of_nodes_in_use_the_next_ones_are_timed() -> None:
    async def story() -> Message:
        _, said, _ = await calibrated(Settings(startup_s=1e6), *map(titan, range(4)), nodes=6)
        return said

    said = run(story)
    assert isinstance(said, Calibration)
    assert sorted(said.left_out) == [f"titan-{number}" for number in range(4)]
    [row] = said.rows
    assert row.measurements == (3 * 2 + 4) * len(SIZES) * REPEATS
    assert row.network is not None


# ---- nodes in use, where only pairs are timed


class Agents(Questions):
    """Their answers. `busy`: they refuse to begin; `apart`: they cannot reach each other."""

    def __init__(self, *busy: str, apart: bool = False) -> None:
        self.busy = busy
        self.apart = apart
        self.begun: list[str] = []

    async def ask(self, question: Question, timeout_s: float) -> Message:  # noqa: ARG002 - the port's
        assert isinstance(question, OpenAllReduce | JoinAllReduce)
        if question.node_id in self.busy:
            return Refused(reason="1 GPUs wanted, 0 free")
        if isinstance(question, OpenAllReduce):
            self.begun.append(question.node_id)
            return AllReduceMeeting(meeting="h:1", sizes=SIZES)
        if self.apart:
            return Refused(reason="the all-reduces took more than 55 s")
        return AllReduceTimes(seconds=tuple((size / NETWORK,) * REPEATS for size in SIZES))

    async def serve(self, service: str, subject: str, answer: Answer) -> None:
        """Nobody else answers."""


def pairs_of(agents: Agents, count: int) -> tuple[list[list[NodeId]], dict[NodeId, str]]:
    """The pairs timed among nodes with one GPU, and the nodes left out."""
    nodes = [node(f"a{number}", gpus=1) for number in range(count)]
    timings, left_out = asyncio.run(measured(agents, LOOP_TASKS, nodes))
    return [[one.node_id for one, _ in timing.ring.members] for timing in timings], left_out


def test_in_place_of_a_node_in_use_a_pair_has_the_next_one() -> None:
    pairs, left_out = pairs_of(Agents("a0", "a2"), 8)
    assert pairs == [["a1", "a3"], ["a4", "a5"]]
    assert left_out == dict.fromkeys(["a0", "a2"], "1 GPUs wanted, 0 free")
    pairs, left_out = pairs_of(Agents("a1"), 8)
    assert pairs == [["a2", "a3"], ["a0", "a4"]]
    assert list(left_out) == ["a1"]


def test_where_every_other_node_is_in_use_no_pair_is_timed() -> None:
    pairs, left_out = pairs_of(Agents(*(f"a{number}" for number in range(1, 6))), 6)
    assert pairs == []
    assert list(left_out) == [f"a{number}" for number in range(1, 6)]


def test_where_nodes_do_not_reach_each_other_no_further_pair_is_tried() -> None:
    agents = Agents(apart=True)
    pairs, left_out = pairs_of(agents, 8)
    assert pairs == []
    assert sorted(agents.begun) == ["a0", "a1", "a2", "a3"]
    assert set(left_out.values()) == {"the all-reduces took more than 55 s"}


def test_an_answer_that_cannot_be_read_is_no_measurement() -> None:
    class Garbled(Agents):
        async def ask(self, question: Question, timeout_s: float) -> Message:  # noqa: ARG002 - the port's
            raise Malformed("truncated")

    pairs, left_out = pairs_of(Garbled(), 2)
    assert pairs == []
    assert "cannot be read" in left_out[NodeId("a0")]


def test_times_that_cannot_be_are_no_measurement() -> None:
    class TooFast(Agents):
        async def ask(self, question: Question, timeout_s: float) -> Message:
            reply = await super().ask(question, timeout_s)
            if isinstance(reply, AllReduceTimes):
                return AllReduceTimes(seconds=((1e-300,) * REPEATS,) * len(SIZES))
            return reply

    pairs, left_out = pairs_of(TooFast(), 2)
    assert pairs == []
    assert "cannot be" in left_out[NodeId("a0")]
