"""What each mode means, on the worked examples of the papers' notes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.ids import NodeId, RotaId
from schemas.placement import Forked, Gang, Lockstep, Mode, Proportional, Relaxed, Sync
from shared.domain import gangs, in_turns
from shared.domain.tally import Tally

A, B, C, D, E = (NodeId(name) for name in "abcde")
T4, V100 = NodeId("t4"), NodeId("v100")

RESNET_18 = {T4: 275.0, V100: 644.0}
"""samples/s of one GPU (JPS, equation 9)"""
MIXED = {T4: 2, V100: 1}


def rates(gang: Gang, table: dict[NodeId, float]) -> list[float]:
    return [table[node] for node in gang.nodes]


def test_every_mode_has_a_meaning() -> None:
    assert set(gangs.MEANINGS) == set(Sync.__args__)
    assert all(issubclass(mode, Mode) for mode in gangs.MEANINGS)


@pytest.mark.parametrize(
    ("sync", "copies", "resident", "fills_any_room"),
    [
        (Lockstep(), False, False, False),
        (Proportional(samples=(2, 1)), False, False, False),
        (Forked(shares=(0.5, 0.5)), True, False, False),
        (Relaxed(tasks=((1, 1), (1,))), False, True, True),
    ],
)
def test_what_a_mode_means_for_a_job_s_processes(
    sync: Sync,
    copies: bool,  # noqa: FBT001
    resident: bool,  # noqa: FBT001
    fills_any_room: bool,  # noqa: FBT001
) -> None:
    gang = Gang.of({A: 2, B: 1}, sync)
    assert gangs.merges(gang) is copies
    assert gangs.resident(gang) is resident
    assert gangs.fill_any_room([Lockstep, type(sync)]) is fills_any_room
    assert not gangs.retimes(gang, gang)
    assert gangs.keeps(gang, gang) is not copies
    assert gangs.share(gang, A) == (0.5 if copies else 1.0)


@pytest.mark.parametrize("sync", [Lockstep(), Proportional(samples=(2, 1))])
def test_only_a_gang_of_a_rota_takes_other_turns(sync: Sync) -> None:
    present = Gang.of({A: 2, B: 1}, sync)
    for wanted in (Gang.of({A: 2, B: 1}), Gang.of({A: 1, B: 2}), Gang.of({A: 2, B: 2})):
        assert not gangs.retimes(present, wanted)


# ---- lockstep


def test_in_lockstep_the_slowest_gpu_decides_for_all() -> None:
    gang = Gang.of(MIXED)
    assert gangs.throughput(gang, rates(gang, RESNET_18), 128) == pytest.approx(3 * 275.0)
    assert gangs.batches(gang, 128) == ((128, 128), (128,))
    assert gangs.tasks(gang) == ((1, 1), (1,))
    assert gangs.in_words(Gang.of(MIXED, Lockstep())) == ""
    assert gangs.global_batch(gang, 128) == 384
    assert gangs.learning_rate(gang, {1: 0.1, 3: 0.3}) == 0.3
    assert gangs.leaders(gang) == (T4,)
    assert gangs.part_of(gang, V100) == gang


@pytest.mark.parametrize(("place", "rate"), [({A: 3, B: 1}, 4.0), ({A: 1, B: 3}, 4.0)])
def test_a_fast_gpu_beside_a_slow_one_runs_like_it(place: dict[NodeId, int], rate: float) -> None:
    """Hadar, E2: one job of four GPUs, X = (10, 1)."""
    gang = Gang.of(place)
    assert gangs.throughput(gang, rates(gang, {A: 10.0, B: 1.0}), 1) == pytest.approx(rate)


def test_an_exchange_takes_its_time_where_there_is_one() -> None:
    assert gangs.throughput(Gang.of({A: 1}), [100.0], 100, exchange_s=1.0) == pytest.approx(100.0)
    assert gangs.throughput(Gang.of({A: 2}), [100.0], 100, exchange_s=1.0) == pytest.approx(100.0)


def test_a_demand_speaks_of_gpus() -> None:
    assert gangs.misfit(Gang.of(MIXED), (3,), 128) == ""
    assert gangs.misfit(Gang.of(MIXED), (1, 2), 128) == "3 GPUs, not one of (1, 2)"


# ---- proportional (JPS, example E6)


def test_samples_are_divided_by_speed_and_the_global_batch_stays() -> None:
    gang = gangs.proportional(MIXED, RESNET_18, 128)
    assert gang.sync == Proportional(samples=(177, 207))
    assert gangs.batches(gang, 128) == ((89, 88), (207,))
    assert gangs.global_batch(gang, 128) == 384
    assert gangs.learning_rate(gang, {3: 0.3}) == 0.3
    assert gangs.throughput(gang, rates(gang, RESNET_18), 128) == pytest.approx(384 / (89 / 275))
    assert 1186.0 < gangs.throughput(gang, rates(gang, RESNET_18), 128) < 275 * 2 + 644


def test_samples_that_are_not_the_global_batch_are_amiss() -> None:
    wrong = Gang.of(MIXED, Proportional(samples=(177, 206)))
    assert gangs.misfit(wrong, (3,), 128) == "383 samples an iteration in place of 384"
    assert gangs.misfit(gangs.proportional(MIXED, RESNET_18, 128), (3,), 128) == ""


PLACES = st.dictionaries(st.sampled_from("abcd").map(NodeId), st.integers(1, 8), min_size=1)


@given(PLACES, st.lists(st.floats(0.1, 1e4), min_size=4, max_size=4), st.integers(1, 512))
def test_shares_are_whole_and_leave_no_gpu_out(
    place: dict[NodeId, int], speeds: list[float], batch_size: int
) -> None:
    speed = dict(zip((A, B, C, D), speeds, strict=True))
    gang = gangs.proportional(place, speed, batch_size)
    taken = gangs.batches(gang, batch_size)
    assert min(map(min, taken)) >= 1
    assert sum(map(sum, taken)) == gang.gpus * batch_size
    assert all(max(each) - min(each) <= 1 for each in taken)
    assert gangs.misfit(gang, (gang.gpus,), batch_size) == ""


@given(PLACES, st.floats(0.1, 1e4), st.integers(1, 512))
def test_gpus_of_one_speed_share_as_in_lockstep(
    place: dict[NodeId, int], speed: float, batch_size: int
) -> None:
    gang = gangs.proportional(place, dict.fromkeys(place, speed), batch_size)
    same = [speed] * len(place)
    assert gangs.batches(gang, batch_size) == gangs.batches(Gang.of(place), batch_size)
    assert gangs.throughput(gang, same, batch_size) == gangs.throughput(Gang.of(place), same, batch_size)


# ---- forked (HadarE, examples E4, E5, E7)

FIVE = {A: 10.0, B: 4.0, C: 0.5, D: 8.0, E: 3.0}
"""steps/s as believed"""


def forked(speeds: dict[NodeId, float]) -> Gang:
    total = sum(speeds.values())
    return Gang.of(dict.fromkeys(speeds, 1), Forked(shares=tuple(one / total for one in speeds.values())))


def test_every_copy_is_a_part_of_its_own() -> None:
    gang = forked(FIVE)
    assert gangs.leaders(gang) == gang.nodes
    assert gangs.part_of(gang, C) == Gang.of({C: 1})
    assert gangs.throughput(gang, list(FIVE.values()), 1) == pytest.approx(25.5)
    assert gangs.misfit(gang, (1,), 64) == ""
    assert gangs.misfit(gang, (5,), 64) == "1 GPUs, not one of (5,)"


def test_copies_of_unlike_size_have_no_learning_rate_in_common() -> None:
    unlike = Gang.of({A: 1, B: 2}, Forked(shares=(0.5, 0.5)))
    assert gangs.learning_rate(unlike, {1: 0.1, 2: 0.2}) is None
    assert gangs.learning_rate(gangs.part_of(unlike, B), {1: 0.1, 2: 0.2}) == 0.2
    assert gangs.learning_rate(forked(FIVE), {1: 0.1}) == 0.1


def test_quotas_are_whole_steps_of_the_rest() -> None:
    assert gangs.quotas(forked(FIVE), 9000.0, 1) == {A: 3529, B: 1412, C: 176, D: 2824, E: 1059}
    after = {A: 9.0, B: 4.0, C: 0.6, D: 8.0, E: 2.5}
    assert list(gangs.quotas(forked(after), 448.0, 1).values()) == [167, 74, 11, 149, 47]
    three = {A: 9.0, B: 4.0, D: 8.0}
    assert sum(gangs.quotas(forked(three), 100.0 * 64 - 1, 64).values()) == 100 * 64


def test_dividing_among_all_nodes_leaves_samples_over_where_only_some_have_a_copy() -> None:
    """E5: three of five nodes train, and each round leaves a part of the rest to the next."""
    shares = tuple(FIVE[node] / 25.5 for node in (A, B, D))
    gang = Gang.of({A: 1, B: 1, D: 1}, Forked(shares=shares))
    left, given = [3000.0], []
    while left[-1] and len(left) < 10:
        given.append(list(gangs.quotas(gang, left[-1], 1).values()))
        left.append(left[-1] - sum(given[-1]))
    assert given[0] == [1176, 471, 941]
    assert left == [3000, 412, 56, 8, 1, 0]


def test_the_rest_is_divided_among_the_nodes_with_a_copy() -> None:
    """E5: 3000 steps on a, b, d: one round; the paper's division among all five takes five."""
    assert gangs.divided(3000, (10.0, 4.0, 8.0)) == (1364, 545, 1091)


def test_copies_are_merged_by_their_samples() -> None:
    assert gangs.merged(1000.0, (1600.0, 1300.0), 2320.0) == 1900.0
    assert gangs.merged(1000.0, (1600.0, 1300.0, 1100.0), 2320.0) == 2000.0
    assert gangs.merged(1000.0, (), 2320.0) == 1000.0
    assert gangs.merged(1000.0, (1600.0, 1300.0, 1480.0), 2320.0) == 2320.0


def test_a_forked_gang_planned_again_is_merged_first() -> None:
    gang = forked(FIVE)
    assert not gangs.keeps(gang, gang)
    assert gangs.keeps(Gang.of(MIXED), Gang.of(MIXED))
    assert not gangs.keeps(Gang.of(MIXED), gangs.proportional(MIXED, RESNET_18, 128))


@given(st.integers(0, 10_000), st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9))
def test_a_division_is_whole_and_nearly_exact(whole: int, weights: list[float]) -> None:
    shares = gangs.divided(whole, weights)
    assert sum(shares) == whole
    exact = [whole * weight / sum(weights) for weight in weights]
    assert all(abs(share - one) < 1.0 + 1e-6 for share, one in zip(shares, exact, strict=True))


# ---- relaxed (Hare, examples E1 and E6; the batch is 1, so rates are tasks/s)


def test_the_gpu_with_most_to_do_decides_for_a_round() -> None:
    gang = Gang.of({A: 1, B: 1}, Relaxed(tasks=((3,), (1,))))
    assert gangs.misfit(gang, (4,), 64) == ""
    assert gangs.misfit(gang, (2,), 64) == "4 tasks, not one of (2,)"
    assert gangs.global_batch(gang, 64) == 256
    assert gangs.learning_rate(gang, {2: 0.2, 4: 0.4}) == 0.4
    first = gangs.throughput(gang, [1 / 0.2, 1 / 0.6], 1, exchange_s=0.08)
    second = gangs.throughput(gang, [1 / 0.1, 1 / 0.15], 1, exchange_s=0.04)
    assert 4 / first == pytest.approx(0.680)
    assert 4 / second == pytest.approx(0.340)


@pytest.mark.parametrize(
    ("seconds", "tasks", "round_s"), [((3.0, 3.0), (2, 2), 6.0), ((1.0, 2.0), (4, 2), 4.0)]
)
def test_two_gpus_take_a_round_in_turns(
    seconds: tuple[float, float], tasks: tuple[int, int], round_s: float
) -> None:
    """E1: jobs A (four tasks) and B (six) on GPUs 1 and 2 alone."""
    gang = Gang.of({A: 1, B: 1}, Relaxed(tasks=((tasks[0],), (tasks[1],))))
    rate = gangs.throughput(gang, [1 / one for one in seconds], 1)
    assert sum(tasks) / rate == pytest.approx(round_s)


def test_one_task_a_gpu_is_lockstep() -> None:
    relaxed = Gang.of(MIXED, Relaxed(tasks=((1, 1), (1,))))
    speeds = rates(relaxed, RESNET_18)
    assert gangs.batches(relaxed, 128) == gangs.batches(Gang.of(MIXED), 128)
    assert gangs.throughput(relaxed, speeds, 128, 0.1) == gangs.throughput(Gang.of(MIXED), speeds, 128, 0.1)


# ---- all modes


@pytest.mark.parametrize(
    ("sync", "answered_for", "shows_paces"),
    [
        (Lockstep(), True, True),
        (Proportional(samples=(200, 56)), True, False),
        (Forked(shares=(0.5, 0.5)), False, False),
        (Relaxed(tasks=((1,), (3,))), False, False),
    ],
)
def test_only_lockstep_shows_the_pace_of_a_gpu(sync: Sync, answered_for: bool, shows_paces: bool) -> None:  # noqa: FBT001
    gang = Gang.of({A: 1, B: 1}, sync)
    assert (gangs.observed(gang), gangs.paced(gang)) == (answered_for, shows_paces)


def test_shares_that_change_little_are_kept() -> None:
    """By less than a twentieth of each node's own; and only on the same GPUs, for the same global batch."""
    present = Gang.of(MIXED, Proportional(samples=(184, 200)))
    assert gangs.keeps(present, present)
    assert gangs.keeps(present, Gang.of(MIXED, Proportional(samples=(193, 191))))
    assert not gangs.keeps(present, Gang.of(MIXED, Proportional(samples=(194, 190))))
    assert not gangs.keeps(present, Gang.of(MIXED, Proportional(samples=(185, 200))))
    assert not gangs.keeps(present, Gang.of({T4: 1, V100: 2}, Proportional(samples=(184, 200))))
    assert not gangs.keeps(present, Gang.of(MIXED))
    assert not gangs.keeps(Gang.of(MIXED), present)


def test_samples_by_node_add_up_to_the_global_batch() -> None:
    assert gangs.samples(Gang.of(MIXED), 128) == (256, 128)
    assert gangs.samples(Gang.of(MIXED, Proportional(samples=(177, 207))), 128) == (177, 207)


def test_a_gang_without_a_lost_node_has_the_other_nodes() -> None:
    gang = forked(FIVE)
    rest = gangs.without(gang, A)
    assert rest is not None
    assert rest.nodes == (B, C, D, E)
    assert gangs.without(Gang.of({A: 1}), A) is None


def test_a_gpu_that_waits_shows_a_pace_of_its_own() -> None:
    """Two GPUs, a batch of 100: the slow one takes 1 s, the fast one 0.25 s and waits for 0.75 s."""
    gang = Gang.of({A: 1, B: 1})
    assert gangs.pace(gang, 200.0, 100) == 100.0
    assert gangs.pace(gang, 200.0, 100, wait_s=0.75) == 400.0
    assert gangs.pace(gang, 200.0, 100, wait_s=1.5) is None  # more than there was


@given(st.integers(1, 512), st.floats(1e-6, 1.0), st.floats(0.0, 1.0))
def test_the_largest_safe_batch_fits_for_any_fixed_part_of_the_memory(
    batch_size: int, share: float, fixed: float
) -> None:
    """`fixed`: the part of what was taken that does not grow with the batch."""
    most = gangs.batch_most(batch_size, share)
    assert most >= batch_size
    if most > batch_size:
        assert share * (fixed + (1.0 - fixed) * most / batch_size) <= 1.0 - gangs.MEMORY_SPARED + 1e-9


def test_a_batch_is_bounded_even_where_memory_use_is_zero() -> None:
    assert gangs.batch_most(100, 0.0) == gangs.batch_most(100, 1e-9) == 6400
    assert gangs.batch_most(100, 0.475) == 200
    assert gangs.batch_most(100, 1.0) == 100


TURNS = Relaxed(tasks=((3,), (1,)), rota=RotaId("r"))


@pytest.mark.parametrize(
    ("turns", "words"),
    [(0, "relaxed, 0 turns a cycle"), (1, "relaxed, 1 turn a cycle"), (3, "relaxed, 3 turns a cycle")],
)
def test_a_gang_of_a_rota_says_its_turns(turns: int, words: str) -> None:
    assert gangs.in_words(Gang.of({A: 1, B: 1}, replace(TURNS, turns=turns))) == words


@pytest.mark.parametrize(
    ("wanted", "runs_on"),
    [
        (TURNS, True),
        (replace(TURNS, turns=3, place=2), True),
        (replace(TURNS, tasks=((1,), (3,))), True),
        (replace(TURNS, tasks=((4,), (0,))), True),
        (replace(TURNS, tasks=((0,), (4,))), False),
        (replace(TURNS, tasks=((3,), (2,))), False),
        (replace(TURNS, rota=RotaId("s")), False),
        (Relaxed(tasks=((3,), (1,))), False),
    ],
)
def test_a_job_runs_on_in_its_rota_while_its_batch_is_the_same(wanted: Relaxed, runs_on: bool) -> None:  # noqa: FBT001
    present, then = Gang.of({A: 1, B: 1}, TURNS), Gang.of({A: 1, B: 1}, wanted)
    assert gangs.keeps(present, then) is runs_on
    assert gangs.retimes(present, then) is (runs_on and present != then)
    assert not gangs.retimes(present, Gang.of({A: 1}, replace(TURNS, tasks=((4,),))))


@pytest.mark.parametrize(("tasks", "node"), [(((0,), (4,)), B), (((4,), (0,)), A), (((1,), (3,)), A)])
def test_a_job_is_led_by_the_first_node_that_has_a_task(
    tasks: tuple[tuple[int, ...], ...], node: NodeId
) -> None:
    gang = Gang.of({A: 1, B: 1}, replace(TURNS, tasks=tasks))
    assert gangs.leaders(gang) == (node,) == gangs.leaders(gangs.computing(gang))
    assert [*Tally.of(gang, 0.0, 0.0).leaders] == [node]
    assert gangs.trained_by(gang, meets=False) == (A, B), "others of the rota may be led by the other node"


def test_holders_are_counted_once() -> None:
    shared, own = Gang.of({A: 2, B: 1}, Relaxed(tasks=((1, 1), (1,)), rota=RotaId("r"))), Gang.of({A: 1})
    assert in_turns.held([("p1", shared), ("p2", shared), ("p3", own), ("p4", own)]) == {A: 4, B: 1}
    other = Gang.of({A: 1}, Relaxed(tasks=((1,),), rota=RotaId("r")))
    assert in_turns.held([("p1", shared), ("p2", other)]) == {A: 3, B: 1}, "the same id on other GPUs"


# ---- who trains, and who may run


IN_ROTA = Gang.of({A: 1, B: 1}, Relaxed(tasks=((1,), (1,)), rota=RotaId("r")))


@pytest.mark.parametrize(
    ("gang", "meets", "nodes"),
    [
        (Gang.of({A: 1, B: 1}), False, (A,)),
        (Gang.of({A: 1, B: 1}), True, (A, B)),
        (IN_ROTA, False, (A, B)),
        (IN_ROTA, True, (A, B)),
    ],
)
def test_nodes_get_the_order_to_train_where_processes_meet_or_take_turns(
    gang: Gang,
    meets: bool,  # noqa: FBT001
    nodes: tuple[NodeId, ...],
) -> None:
    assert gangs.trained_by(gang, meets=meets) == nodes


def test_only_a_gang_with_a_rota_takes_turns() -> None:
    assert gangs.in_rota(IN_ROTA) is IN_ROTA.sync
    assert gangs.in_rota(Gang.of({A: 1}, Relaxed(tasks=((1,),)))) is None
    assert gangs.in_rota(Gang.of({A: 1})) is None


def test_a_gang_that_is_only_resident_gets_one_turn() -> None:
    resident = Gang(IN_ROTA.members, replace(IN_ROTA.sync, turns=0))
    assert gangs.turning(resident) == Gang(IN_ROTA.members, replace(IN_ROTA.sync, turns=1))
    twice = Gang(IN_ROTA.members, replace(IN_ROTA.sync, turns=2))
    assert [gangs.turning(gang) for gang in (twice, Gang.of({A: 1}))] == [twice, Gang.of({A: 1})]


def test_the_modes_of_a_job_are_those_it_names_and_lockstep() -> None:
    assert gangs.known_modes(()) == ()
    assert gangs.known_modes(["relaxed"]) == ("lockstep", "relaxed")
    assert gangs.known_modes(["relaxed", "lockstep", "of-tomorrow", "forked"]) == (
        "forked",
        "lockstep",
        "relaxed",
    )
    assert gangs.known_modes(["of-tomorrow"]) == ("lockstep",)


def test_a_runner_of_lockstep_runs_copies_too() -> None:
    assert gangs.with_copies([Lockstep, Relaxed]) == {Lockstep, Relaxed, Forked}
    assert gangs.with_copies([Relaxed]) == {Relaxed}


def test_a_copy_makes_its_share_of_what_all_copies_do() -> None:
    """Also where the shares leave something to later rounds."""
    gang = Gang.of({A: 1, B: 1}, Forked(shares=(0.6, 0.2)))
    assert [gangs.share(gang, node) for node in (A, B)] == pytest.approx([0.75, 0.25])


def test_copies_do_all_that_is_left_where_their_shares_sum_to_one() -> None:
    thirds = Gang.of({A: 1, B: 1, C: 1}, Forked(shares=(1 / 3, 1 / 3, 1 / 3)))
    assert gangs.quotas(thirds, 300.0, 10) == {A: 100.0, B: 100.0, C: 100.0}
    assert gangs.quotas(thirds, 0.0, 10) == {A: 0.0, B: 0.0, C: 0.0}
    assert gangs.quotas(thirds, -5.0, 10) == {A: 0.0, B: 0.0, C: 0.0}
    assert gangs.quotas(thirds, 0.5, 10) == {A: 10.0, B: 0.0, C: 0.0}


def test_shares_of_another_batch_are_not_kept() -> None:
    present, wanted = (Gang.of({A: 1, B: 1}, Proportional(samples=each)) for each in ((100, 50), (101, 50)))
    assert not gangs.keeps(present, wanted)
    assert not gangs.keeps(wanted, present)


def test_turns_are_those_of_one_rota() -> None:
    later = Gang(IN_ROTA.members, replace(IN_ROTA.sync, turns=3))
    assert gangs.retimes(IN_ROTA, later)
    fewer = Gang(IN_ROTA.members, replace(IN_ROTA.sync, tasks=((1,), (0,))))
    assert not gangs.retimes(IN_ROTA, fewer)
    assert not gangs.retimes(fewer, IN_ROTA)
    for rota in ("a", "z"):
        assert not gangs.retimes(IN_ROTA, Gang(later.members, replace(later.sync, rota=RotaId(rota))))


@pytest.mark.parametrize("lost", [A, B, C])
def test_whichever_node_is_lost_the_others_train_on(lost: NodeId) -> None:
    gang = Gang.of({A: 1, B: 1, C: 1}, Forked(shares=(0.5, 0.25, 0.25)))
    left = gangs.without(gang, lost)
    assert left is not None
    assert left.nodes == tuple(node for node in (A, B, C) if node != lost)


def test_a_pace_need_not_be_whole() -> None:
    gang = Gang.of({A: 2})
    assert gangs.pace(gang, 5.0, 3) == 2.5
    assert gangs.pace(gang, 5.0, 3, wait_s=0.2) == pytest.approx(3.0)
    assert gangs.pace(gang, 5.0, 3, wait_s=0.7) == pytest.approx(3.0 / 0.5)
    assert gangs.pace(gang, 6.0, 3, wait_s=1.0) is None
