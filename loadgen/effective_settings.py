"""Which settings take effect in a simulation.

As in a live stack, a later source wins: the settings file, then the scenario, then the environment.
"""

from collections.abc import Mapping

import msgspec

from loadgen.scenarios import extended
from schemas.scenarios import ScenarioFile
from shared.runtime.settings import FILE_VARIABLE, PREFIX, Value, in_environment, in_file

LIVE_ONLY = frozenset({
    *("nats_url", "nats_token", "nats_user", "nats_password", "nats_replicas"),
    *("publish_timeout_real_s", "publish_in_flight", "ask_timeout_real_s"),
    *("stream_max_bytes", "sample_max_age_real_s", "sample_max_bytes", "listener_queue"),
    *("duplicate_window_real_s", "snapshot_every"),
    *("archive", "archive_file_messages", "archive_every_real_s"),
    *("log_level", "log_format", "web_host", "web_port", "web_max_body_bytes", "api_url", "api_token"),
    *("nats_credentials", "nats_authority", "nats_server_name", "nats_certificate", "nats_key"),
    *("api_token_file", "api_tokens", "web_certificate", "web_key", "behind_proxy"),
    *("speed", "clock_origin", "cluster", "cluster_name", "node", "nodes", "runner", "store"),
    *("policy_load_real_s", "policy_wants_real_s", "policy_memory_max_bytes"),
    *("gpus", "node_file", "address", "output_file_bytes", "output_files", "output_node_bytes"),
    *("turn_limit_s", "jobs_folder", "run_folder", "network_interface", "merge", "job_account", "template"),
    *("instance", "instances", "lease_real_s", "stuck_after_real_s", "allow_lost_facts"),
})  # fmt: skip
"""settings of processes, connections, files and the wall clock, which a simulation does not have"""
OF_COMMANDS = frozenset({"api_url", "api_token", "api_token_file"})
"""settings of the commands that ask a stack, which say nothing about a simulation"""


class EffectiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    scenario: ScenarioFile
    """the scenario, with all effective settings"""
    given: dict[str, Value]
    """effective settings that the scenario does not set itself"""
    ignored: tuple[str, ...]
    """what is set without effect here (but for settings of other commands): a variable, or a name and its
    file or scenario, sometimes with the reason"""


def given_in(environ: Mapping[str, str]) -> dict[str, str]:
    """Where each setting of the file or the environment is set, by name, in words for the user.

    Raises ValueError for a bad setting.
    """
    return {name: f"{name} in {environ.get(FILE_VARIABLE)}" for name in in_file(environ)} | {
        name: PREFIX + name.upper() for name in in_environment(environ)
    }


def catalogue_path(environ: Mapping[str, str]) -> str:
    """The setting `catalogue`: the path of a file; empty: none. Raises ValueError for a bad setting."""
    return str((in_file(environ) | in_environment(environ)).get("catalogue", ""))


def effective_settings(
    scenario: ScenarioFile, environ: Mapping[str, str], decided: Mapping[str, str] | None = None
) -> EffectiveSettings:
    """`decided`: settings that an option decides, with that option. Raises ValueError for a bad setting.

    The entries of the file that the setting `catalogue` names are put into the scenario, so that a run need
    not read it.
    """
    by = decided or {}
    written, environment = in_file(environ), in_environment(environ)
    given = {name: value for name, value in written.items() if name not in scenario.settings} | environment
    given = {name: value for name, value in given.items() if name not in LIVE_ONLY and name not in by}
    ignored = [
        f"{label} ({by[name]} decides)" if name in by else label
        for name, label in given_in(environ).items()
        if name in by or name in LIVE_ONLY - OF_COMMANDS
    ]
    ignored += [f"{name} in {scenario.name}" for name in scenario.settings if name in LIVE_ONLY]
    scenario = extended(scenario, str(given.get("catalogue", "")))
    settings = {**scenario.settings, **{name: value for name, value in given.items() if name != "catalogue"}}
    return EffectiveSettings(
        scenario=msgspec.structs.replace(scenario, settings=settings), given=given, ignored=tuple(ignored)
    )
