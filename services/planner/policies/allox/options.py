"""Options of AlloX."""

from typing import Literal

from services.planner.policies.kit.rigid import RigidOptions


class AlloxOptions(RigidOptions, frozen=True, kw_only=True):
    sizes: Literal["known", "unit"] = "known"
    """how long jobs run: as estimated; or one round each, for whoever may not know"""
