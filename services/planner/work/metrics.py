"""How often policies failed and something else planned, for the metrics endpoint."""

import msgspec

from shared.runtime.service import Metric


class Fallbacks(msgspec.Struct):
    """Plans that were made although the policy failed, since the planner started."""

    stood_in: int = 0
    """plans by the stand-in, because the policy raised or its decision broke a rule"""
    unsolved: int = 0
    """plans by the policy without solving, because it crashed or overran its deadline"""


HELP = {
    "stood_in": "Plans made by the stand-in, because the policy failed.",
    "unsolved": "Plans the policy made without solving, because it crashed or overran its deadline.",
}


def metrics(fallbacks: Fallbacks) -> list[Metric]:
    return [
        Metric(
            name=f"hopyard_plans_{name}_total", help=text, value=float(getattr(fallbacks, name)), counter=True
        )
        for name, text in HELP.items()
    ]
