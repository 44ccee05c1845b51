"""Upgrades messages of earlier versions to the form of this version, as decoded mappings.

The form changes, never the meaning. In version 0.1.0 a placement was GPUs by node (`configuration`) in
lockstep, and StartOrdered listed each node of its gang with its GPUs. Up to protocol 1 the field `held_by` of
LeftOut was named `to`, and `repetition` of ServiceLed was named `again`.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

Raw = dict[str, Any]


def upgraded(raw: Raw) -> Raw:
    """The fact or sample in the form of this version; returned unchanged if it has that form."""
    upgrade = UPGRADES.get(str(raw.get("fact") or raw.get("sample")))
    return upgrade(raw) if upgrade else raw


def _with_gang(raw: Raw) -> Raw:
    if not isinstance(raw.get("configuration"), dict):
        return raw
    rest = {name: value for name, value in raw.items() if name != "configuration"}
    return rest | {"gang": _gang(raw["configuration"])}


def _gang(configuration: Raw) -> Raw:
    return {"members": [{"node": node, "gpus": configuration[node]} for node in sorted(configuration)]}


def _plan(raw: Raw) -> Raw:
    placements, left_out = raw.get("placements"), raw.get("left_out")
    if not (_are_mappings(placements) and _are_mappings(left_out)):
        return raw
    return raw | {
        "placements": [_with_gang(one) for one in placements],
        "left_out": [_renamed(one, "to", "held_by", []) for one in left_out],
    }


def _are_mappings(value: object) -> TypeGuard[list[Raw]]:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _led(raw: Raw) -> Raw:
    return _renamed(raw, "again", "repetition", 0)


def _renamed(raw: Raw, old: str, new: str, default: object) -> Raw:
    """`raw` with the field `old` renamed to `new`; `default`: its value if the field is missing."""
    return {new: raw.get(old, default)} | {name: value for name, value in raw.items() if name != old}


def _order(raw: Raw) -> Raw:
    """StartOrdered of 0.1.0, whose nodes were in the order of their ids already."""
    pairs = raw.get("gang")
    if not isinstance(pairs, list):
        return raw
    nodes = [node for node, _ in pairs]
    return raw | {"gang": _gang({node["node_id"]: gpus for node, gpus in pairs}), "nodes": nodes}


UPGRADES: Mapping[str, Callable[[Raw], Raw]] = {
    "job.started": _with_gang,
    "plan.published": _plan,
    "worker.start-ordered": _order,
    "service.led": _led,
    "throughput": _with_gang,
}
"""upgrade of a message, by its tag"""
