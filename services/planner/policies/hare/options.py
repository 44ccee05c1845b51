"""Options of Hare."""

from typing import Annotated

from msgspec import Meta

from services.planner.policies.hare.parts import RESIDENTS_MOST
from services.planner.policies.kit.rigid import RigidOptions


class HareOptions(RigidOptions, frozen=True, kw_only=True):
    switch_s: Annotated[float, Meta(ge=0, le=60)] = 0.0031
    """seconds that a GPU is assumed to take to switch to another job"""
    residents_max: Annotated[int, Meta(ge=1, le=1_000)] = RESIDENTS_MOST
    """jobs that take turns on one GPU, at most"""
