"""What each policy runs with when policies are compared: two settings, both shown.

`as in the paper` is how the Hops paper set its baselines up (section 4.2): the same demand sets, rounds
and latency-ratio queue for all, Gavel with the median of each demand set. `as its authors set it` is what
the policy's own paper and code use. A policy that is not named runs with its defaults; where both
settings are the same, so are the runs.
"""

from collections.abc import Mapping

import msgspec

from hopyard.experiments.trials import Overrides
from schemas.settings import Settings

PAPER = "as in the paper"
AUTHORS = "as its authors set it"


class Contender(msgspec.Struct, frozen=True):
    """A policy as it was asked for."""

    label: str
    policy: str
    overrides: Overrides = {}
    """settings that somebody chose for it; they win over those below"""


class Setup(msgspec.Struct, frozen=True):
    policy: str
    """the variant that runs"""
    overrides: Overrides = {}


SETUPS: Mapping[str, Mapping[str, Setup]] = {
    PAPER: {
        "gavel": Setup("gavel", {"gavel_queue": "window"}),
    },
    AUTHORS: {
        "gavel": Setup("gavel", {"gavel_queue": "all"}),
        "sia": Setup("sia-powers", {"round_s": 60.0}),
    },
}
"""by setting and policy"""


def contender(text: str) -> Contender:
    """`NAME`, or `NAME+SETTING=VALUE+…`. Raises ValueError for a setting there is not."""
    policy, *changes = text.split("+")
    chosen = dict(change.partition("=")[::2] for change in changes)
    settings = msgspec.convert(chosen, Settings, strict=False)
    return Contender(text, policy, {name: getattr(settings, name) for name in chosen})


def setup_of(setting: str, one: Contender) -> Setup:
    setup = SETUPS[setting].get(one.policy, Setup(one.policy))
    return Setup(setup.policy, {**setup.overrides, **one.overrides})
