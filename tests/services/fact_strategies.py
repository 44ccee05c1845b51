"""Facts at random: well-formed one by one, about few jobs, nodes and placements, and in no order."""

from collections.abc import Callable
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

from schemas.base import Event
from schemas.cluster import Node
from schemas.events import FACTS, NodeJoined, StartOrdered, WorkerStarted
from schemas.jobs import JobSpec, Workload
from schemas.placement import Gang
from tests.fact_builders import a_node, a_spec

NODES = ("node-1", "node-2")
NAMES = {
    "JobId": ("job-1", "job-2"),
    "NodeId": NODES,
    "PlacementId": ("pl-1", "pl-2", "pl-3", "profile-job-1-v100-1"),
    "PlanId": ("plan-1", "plan-2"),
    "GpuType": ("v100", "k80"),
    "Fingerprint": ("a", "b"),
}
NUMBERS = (0.0, 0.5, 1.0, 90.0, 2_000.0)

PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(0, 4),
    float: st.sampled_from(NUMBERS),
    str: st.sampled_from(("", "a", "b")),
    bool: st.booleans(),
    bytes: st.just(b""),
    type(None): st.none(),
    Workload: st.sampled_from([a_spec().workload]),
    JobSpec: st.sampled_from([a_spec(), a_spec(demand=(2,)), a_spec(demand=(1, 3), samples=5.0)]),
    Node: st.builds(
        a_node, st.sampled_from(NODES), gpus=st.integers(1, 4), gpu_type=st.sampled_from(NAMES["GpuType"])
    ),
    Gang: st.builds(Gang.of, st.dictionaries(st.sampled_from(NODES), st.integers(1, 4), min_size=1)),
}


def values(kind: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 - any type that a field of a fact has
    """Values of a field, all of them such as the field may hold."""
    if get_origin(kind) is Annotated:
        return values(get_args(kind)[0]).filter(lambda value: _fits(value, kind))
    if kind in PLAIN:
        return PLAIN[kind]
    if hasattr(kind, "__supertype__"):
        return st.sampled_from(NAMES[kind.__name__])
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structs(kind)
    inner = [values(one) for one in get_args(kind) if one is not Ellipsis]
    return COMPOSED[get_origin(kind)](*inner)


def _fits(value: object, kind: object) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


COMPOSED: dict[Any, Callable[..., st.SearchStrategy[Any]]] = {
    Union: st.one_of,
    UnionType: st.one_of,
    tuple: lambda one: st.lists(one, max_size=3).map(tuple),
    dict: lambda key, value: st.dictionaries(key, value, max_size=2),
}


def structs(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind, include_extras=True)
    fields = {name: values(hints[name]) for name in kind.__struct_fields__}
    return st.fixed_dictionaries(fields).map(lambda drawn: kind(**_agreeing(kind, drawn)))


def _agreeing(kind: type[msgspec.Struct], drawn: dict[str, Any]) -> dict[str, Any]:
    """Fields that cannot contradict one another."""
    if kind is NodeJoined:
        return drawn | {"node": msgspec.structs.replace(drawn["node"], node_id=drawn["node_id"])}
    if kind is StartOrdered:
        nodes = tuple(a_node(name) for name in drawn["gang"].nodes)
        return drawn | {"nodes": nodes}
    if kind is WorkerStarted:
        return drawn | {"gpu_indices": tuple(sorted({0, *drawn["gpu_indices"]}))}
    return drawn


FACT: st.SearchStrategy[Event] = st.one_of([structs(kind) for kind in FACTS.values()])
