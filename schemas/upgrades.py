"""Upgrades messages of earlier versions to the form of this one: raw messages in, raw messages out.

Only forms change here, never meanings. Of version 0.1.0: a placement was GPUs by node (`configuration`), all
of them in lockstep, and an order to start had each node of its gang together with its GPUs. Up to protocol 1
`held_by` of a job left out was `to`, and `repetition` of who leads was `again`.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

Raw = dict[str, Any]


def upgraded(raw: Raw) -> Raw:
    """A fact or sample as a mapping, of whichever version. One of this version comes back as it is."""
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
    """`default` where neither name is there."""
    return {new: raw.get(old, default)} | {name: value for name, value in raw.items() if name != old}


def _order(raw: Raw) -> Raw:
    """The placer of 0.1.0 wrote the nodes in the order of their ids."""
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
"""by tag"""
