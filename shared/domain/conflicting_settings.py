"""Combinations of settings that are refused although each setting is allowed: one table. Pure.

A combination is listed if a stack that has it would repeat work in vain, discard what it was asked to keep,
or ignore a setting. Combinations that are merely unwise are not listed.
"""

from collections.abc import Callable
from typing import NamedTuple

from schemas.settings import Settings

EMULATED = "emulated"
"""the runner whose workers need `startup_s` to come up"""


PROCESSES = "process"
"""the runner whose workers are real"""


class Condition(NamedTuple):
    names: tuple[str, ...]
    """the settings that the condition is about"""
    holds: Callable[[Settings], bool]
    reason: str
    """what the combination would cause, and what to do"""


CONDITIONS: tuple[Condition, ...] = (
    Condition(
        ("startup_s", "start_timeout_real_s", "speed"),
        lambda it: it.runner != EMULATED or it.startup_s < it.start_timeout_real_s * it.speed,
        "every start would be given up before its workers are up; startup_s must be less than "
        "start_timeout_real_s × speed",
    ),
    Condition(
        ("startup_s", "round_s", "profile_timeout_s"),
        lambda it: it.runner != EMULATED or it.startup_s < it.round_s + it.profile_timeout_s,
        "every measurement would be given up before its worker is up; startup_s must be less than round_s + "
        "profile_timeout_s",
    ),
    Condition(
        ("heartbeat_real_s", "node_lease_real_s"),
        lambda it: it.heartbeat_real_s < it.node_lease_real_s,
        "every node would be lost between two heartbeats; heartbeat_real_s must be less than "
        "node_lease_real_s",
    ),
    Condition(
        ("solve_deadline_real_s", "work_timeout_real_s"),
        lambda it: it.solve_deadline_real_s < it.work_timeout_real_s,
        "a plan would count as failed while it may still be solved; solve_deadline_real_s must be less than "
        "work_timeout_real_s",
    ),
    Condition(
        ("policy_wants_real_s", "estimate_timeout_real_s", "work_timeout_real_s"),
        lambda it: it.policy_wants_real_s + it.estimate_timeout_real_s < it.work_timeout_real_s,
        "a plan would count as failed while it may still be prepared; policy_wants_real_s + "
        "estimate_timeout_real_s must be less than work_timeout_real_s",
    ),
    Condition(
        ("policy_load_real_s", "work_timeout_real_s"),
        lambda it: it.policy_load_real_s < it.work_timeout_real_s,
        "a policy would count as failed while it may still be loaded; policy_load_real_s must be less than "
        "work_timeout_real_s",
    ),
    Condition(
        ("runner", "speed"),
        lambda it: it.runner != PROCESSES or it.speed == 1.0,
        "a clock that runs faster than time says nothing about real jobs; speed must be 1",
    ),
    Condition(
        ("publish_timeout_real_s", "duplicate_window_real_s"),
        lambda it: it.publish_timeout_real_s < it.duplicate_window_real_s,
        "a fact that is published again would be stored twice; publish_timeout_real_s must be less than "
        "duplicate_window_real_s",
    ),
    Condition(
        ("output_file_bytes", "output_node_bytes"),
        lambda it: it.output_file_bytes <= it.output_node_bytes,
        "one file would be more than the node may keep; output_file_bytes must not be more than "
        "output_node_bytes",
    ),
    Condition(
        ("nats_password", "nats_user"),
        lambda it: not it.nats_password or bool(it.nats_user),
        "a password without a user is not used; nats_user is needed too",
    ),
    Condition(
        ("web_certificate", "web_key"),
        lambda it: bool(it.web_certificate) == bool(it.web_key),
        "a certificate and its key go together",
    ),
    Condition(
        ("nats_certificate", "nats_key"),
        lambda it: bool(it.nats_certificate) == bool(it.nats_key),
        "a certificate and its key go together",
    ),
)

HIDDEN = frozenset({"nats_password"})


class ConflictingSettings(ValueError):
    """Settings that cannot hold together; the text has their values and what they would cause."""


def check_together(settings: Settings) -> None:
    """Raises ConflictingSettings."""
    for each in CONDITIONS:
        if not each.holds(settings):
            values = [_valued(settings, name) for name in each.names]
            both = f"{', '.join(values[:-1])} and {values[-1]}"
            raise ConflictingSettings(f"{both} cannot hold together: {each.reason}")


def _valued(settings: Settings, name: str) -> str:
    value = getattr(settings, name)
    if name in HIDDEN:
        return name
    return f"{name}={value:.12g}" if isinstance(value, float) else f"{name}={value}"
