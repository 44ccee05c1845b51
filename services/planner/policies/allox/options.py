"""Options of AlloX."""

from typing import Literal

from services.planner.policies.kit.rigid import RigidOptions


class AlloxOptions(RigidOptions, frozen=True, kw_only=True):
    sizes: Literal["known", "unit"] = "known"
    """how long jobs run: `known`, as estimated; `unit`, one round each, if running times must not be known"""
