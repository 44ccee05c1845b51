"""The settings of each policy in the experiments of the Hops paper: two for each, both shown.

`as in the paper` is how the Hops paper set its baselines up (section 4.2): the same demand sets, rounds
and service window of the latency-ratio queue for all, Gavel with the median of each demand set. `as its
authors set it` is what the policy's own paper and code use. Where the paper can be read otherwise,
`READINGS` has the other readings, one change each. A policy that is not named runs with its defaults; where
both settings are the same, so are the runs. In both the services do what the papers' do, and not what a
stack does by default (`AS_PUBLISHED`).
"""

from collections.abc import Mapping

import msgspec

from hopyard.lab.runs.trials import Overrides
from loadgen.effective_settings import LIVE_ONLY
from schemas.settings import Settings
from services.planner.policies.hops.policy import DEPARTURES as RULES
from services.planner.policies.registry import Registry, UnfitPolicy, options_kind
from shared.domain.iteration import DEPARTURES as EQUATIONS
from shared.domain.policy_names import parted, written
from shared.runtime.settings import converted

PAPER = "as in the paper"
AUTHORS = "as its authors set it"
READ_OTHERWISE = "as in the paper, read otherwise"


AS_PUBLISHED: Overrides = {
    "profile_at_once": False,
    "minimum_run_restarts": 0.0,
    "restart_share_max": 1.0,
}
"""settings under which rounds are those of the papers: a new workload is measured when one begins, and
whatever runs may be moved then"""

EVERY_JOB: Overrides = {"profile_known": True}
"""the Hops paper profiles every arriving job"""
KNOWN_TRUSTED: Overrides = {"profile_known": False}

FIELDS = frozenset(Settings.__struct_fields__)
DECIDED: Mapping[str, str] = {
    "policy": "--policies",
    "seed": "--seeds",
    "dump_problems": "`simulate --dump-problems`",
}
"""settings that a comparison's runs cannot choose, and what decides them"""


class Contender(msgspec.Struct, frozen=True):
    """A policy as it was asked for."""

    label: str
    policy: str
    """its name, and the options asked for; these and the settings win over those of the table below"""
    overrides: Overrides = {}


class Setup(msgspec.Struct, frozen=True):
    policy: str
    """the variant that runs, with its options"""
    overrides: Overrides = {}


SETUPS: Mapping[str, Mapping[str, Setup]] = {
    PAPER: {
        "hops": Setup("hops+moving_cost_s=0"),
        "gavel": Setup("gavel+queue=window"),
        "sia": Setup("sia+queue=window"),
    },
    AUTHORS: {
        "hops": Setup("hops+moving_cost_s=0"),
        "gavel": Setup("gavel+queue=all"),
        "sia": Setup("sia-powers", {"round_s": 60.0}),
    },
}
"""the setup of each policy, by setting and policy"""

READINGS: Mapping[str, Setup] = {
    "hops": Setup("hops+moving_cost_s=0"),
    "hops, known workloads not profiled": Setup("hops+moving_cost_s=0", KNOWN_TRUSTED),
    "sia": Setup("sia+queue=window"),
    "sia, all take part": Setup("sia"),
    "sia, weighed by priority": Setup("sia+queue=weights"),
    "sia, slowest counts 1": Setup("sia-plain+queue=window"),
    "sia, slowest counts R_1": Setup("sia-min-count+queue=window"),
    "sia, known workloads not profiled": Setup("sia+queue=window", KNOWN_TRUSTED),
    "gavel": Setup("gavel+queue=window"),
    "gavel, all take part": Setup("gavel"),
    "gavel, weighed by priority": Setup("gavel+queue=weights"),
    "gavel, known workloads not profiled": Setup("gavel+queue=window", KNOWN_TRUSTED),
}
"""by arm: the policies of the paper, and each with one thing otherwise than in `PAPER`"""


def contender(text: str) -> Contender:
    """`NAME+WHAT=VALUE+…`: WHAT is an option of the policy, or a setting.

    Raises ValueError for neither, and for a setting that would have no effect or has no such values.
    """
    name, chosen = parted(text)
    try:
        own = {field.name for field in msgspec.structs.fields(options_kind(name))}
        settings = {what: value for what, value in chosen.items() if what in FIELDS - own}
        policy = written(name, {what: value for what, value in chosen.items() if what not in settings})
        Registry().find(policy)
    except UnfitPolicy as error:
        raise ValueError(str(error)) from None
    for what in settings:
        if what in DECIDED:
            raise ValueError(f"{text}: {DECIDED[what]} decides the setting {what}")
        if what in LIVE_ONLY:
            raise ValueError(f"{text}: the setting {what} has no effect in a simulation")
    kinds = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    overrides = {what: converted(value, kinds[what], f"{text}: {what}") for what, value in settings.items()}
    return Contender(text, policy, overrides)


DEPARTED = "Hops to the letter"
LITERAL: Overrides = {"equations_as_printed": "all"}


def departures() -> dict[str, Setup]:
    """By arm: Hops as it is here, with one rule or equation as printed, and with all of them."""
    here = "hops+moving_cost_s=0"
    rules = {f"{word}, as printed": Setup(f"{here}+as_printed={word}") for word in RULES}
    equations = {f"{word}, as printed": Setup(here, {"equations_as_printed": word}) for word in EQUATIONS}
    arms = {"hops": Setup(here), **rules, **equations, "hops-literal": Setup("hops-literal", LITERAL)}
    return {
        arm: Setup(setup.policy, {**AS_PUBLISHED, **EVERY_JOB, **setup.overrides})
        for arm, setup in arms.items()
    }


def readings() -> dict[str, Setup]:
    return {
        arm: Setup(setup.policy, {**AS_PUBLISHED, **EVERY_JOB, **setup.overrides})
        for arm, setup in READINGS.items()
    }


def setup_of(setting: str, one: Contender) -> Setup:
    asked, options = parted(one.policy)
    setup = SETUPS[setting].get(asked, Setup(asked))
    name, presets = parted(setup.policy)
    return Setup(
        written(name, presets | options), {**AS_PUBLISHED, **EVERY_JOB, **setup.overrides, **one.overrides}
    )
