"""A gang as a value: what it may say, what it looks like on the wire, and when two are the same."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import NodeId, RotaId
from schemas.placement import LOCKSTEP, Forked, Gang, Member, Proportional, Relaxed, Sync

A, B = NodeId("a"), NodeId("b")
PLACES = st.dictionaries(st.sampled_from("abcdef").map(NodeId), st.integers(1, 8), min_size=1)
SYNCS: list[Sync] = [
    LOCKSTEP,
    Proportional(samples=(90, 38)),
    Forked(shares=(0.75, 0.25)),
    Forked(shares=(0.5, 0.25)),
    Relaxed(tasks=((2, 0), (1,))),
    Relaxed(tasks=((2, 1), (0,)), rota=RotaId("r")),
    Relaxed(tasks=((2, 1), (0,)), rota=RotaId("r"), turns=3, place=1),
    Relaxed(tasks=((2, 1), (0,)), rota=RotaId("r"), turns=0),
]


def pair(sync: Sync = LOCKSTEP) -> Gang:
    return Gang.of({B: 1, A: 2}, sync)


@given(PLACES)
def test_the_order_of_nodes_makes_no_difference(place: dict[NodeId, int]) -> None:
    gang, again = Gang.of(place), Gang.of(dict(reversed(place.items())))
    assert gang == again
    assert hash(gang) == hash(again)
    assert gang.configuration == place
    assert gang.gpus == sum(place.values())
    assert gang.nodes == tuple(sorted(place))
    assert all(gang.on(node) == gpus for node, gpus in place.items())
    assert gang.on(NodeId("elsewhere")) == 0


@pytest.mark.parametrize("sync", SYNCS)
def test_every_mode_survives_the_way(sync: Sync) -> None:
    gang = pair(sync)
    assert msgspec.json.decode(msgspec.json.encode(gang), type=Gang) == gang
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(gang), type=Gang) == gang


def test_another_mode_on_the_same_gpus_is_another_gang() -> None:
    gangs = [pair(sync) for sync in SYNCS]
    assert len(set(gangs)) == len(gangs)


def test_a_log_reads_well() -> None:
    assert msgspec.json.encode(pair()) == b'{"members":[{"node":"a","gpus":2},{"node":"b","gpus":1}]}'
    relaxed = msgspec.json.decode(msgspec.json.encode(pair(Relaxed(tasks=((2, 0), (1,))))))
    assert relaxed["sync"] == {"mode": "relaxed", "tasks": [[2, 0], [1]]}
    turns = Relaxed(tasks=((2, 0), (0,)), rota=RotaId("r"), turns=3, place=1)
    shared = msgspec.json.decode(msgspec.json.encode(pair(turns)))
    assert shared["sync"] == {"mode": "relaxed", "tasks": [[2, 0], [0]], "rota": "r", "turns": 3, "place": 1}


def test_the_default_mode_is_lockstep() -> None:
    said = b'{"members":[{"node":"a","gpus":2}],"sync":{"mode":"lockstep"}}'
    silent = b'{"members":[{"node":"a","gpus":2}]}'
    assert msgspec.json.decode(said, type=Gang) == msgspec.json.decode(silent, type=Gang) == Gang.of({A: 2})


@pytest.mark.parametrize(
    ("members", "sync"),
    [
        ((), LOCKSTEP),
        ((Member(A, 0),), LOCKSTEP),
        ((Member(B, 1), Member(A, 1)), LOCKSTEP),
        ((Member(A, 1), Member(A, 1)), LOCKSTEP),
        ((Member(A, 2), Member(B, 1)), Proportional(samples=(90,))),
        ((Member(A, 2), Member(B, 1)), Proportional(samples=(1, 90))),
        ((Member(A, 2), Member(B, 1)), Forked(shares=(0.5, 0.6))),
        ((Member(A, 2), Member(B, 1)), Forked(shares=(1.0, 0.0))),
        ((Member(A, 2), Member(B, 1)), Forked(shares=(0.5, float("nan")))),
        ((Member(A, 2), Member(B, 1)), Forked(shares=(1.0,))),
        ((Member(A, 2), Member(B, 1)), Relaxed(tasks=((1,), (1,)))),
        ((Member(A, 2), Member(B, 1)), Relaxed(tasks=((0, 0), (1,)))),
        ((Member(A, 1),), Relaxed(tasks=((-1,),))),
        ((Member(A, 1),), Relaxed(tasks=((1,),), turns=2)),
        ((Member(A, 1),), Relaxed(tasks=((1,),), place=1)),
        ((Member(A, 1),), Relaxed(tasks=((0,),), rota=RotaId("r"))),
        ((Member(A, 1),), Relaxed(tasks=((1,),), rota=RotaId("r"), turns=-1)),
    ],
)
def test_an_impossible_gang_is_refused_when_made_and_when_read(
    members: tuple[Member, ...], sync: Sync
) -> None:
    with pytest.raises(ValueError, match="gang"):
        Gang(members, sync)
    raw = {"members": msgspec.to_builtins(members), "sync": msgspec.to_builtins(sync)}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(raw, Gang)
