"""Settings that cannot hold together."""

import pytest

from hopyard.actions.scenario import chosen_scenario
from loadgen.scenarios import scenario_names
from loadgen.simulation import virtual_settings
from schemas.settings import Settings
from shared.domain.conflicting_settings import CONDITIONS, ConflictingSettings, check_together

BROKEN: dict[tuple[str, ...], Settings] = {
    ("startup_s", "start_timeout_real_s", "speed"): Settings(startup_s=120.0, speed=2.0),
    ("startup_s", "round_s", "profile_timeout_s"): Settings(
        startup_s=600.0, round_s=300.0, profile_timeout_s=300.0, speed=60.0
    ),
    ("heartbeat_real_s", "node_lease_real_s"): Settings(heartbeat_real_s=6.0),
    ("solve_deadline_real_s", "work_timeout_real_s"): Settings(solve_deadline_real_s=200.0),
    ("policy_wants_real_s", "estimate_timeout_real_s", "work_timeout_real_s"): Settings(
        policy_wants_real_s=80.0, estimate_timeout_real_s=40.0
    ),
    ("policy_load_real_s", "work_timeout_real_s"): Settings(policy_load_real_s=120.0),
    ("runner", "speed"): Settings(runner="process", speed=60.0),
    ("publish_timeout_real_s", "duplicate_window_real_s"): Settings(duplicate_window_real_s=5.0),
    ("output_file_bytes", "output_node_bytes"): Settings(output_node_bytes=999_999),
    ("nats_password", "nats_user"): Settings(nats_password="secret"),
    ("nats_certificate", "nats_key"): Settings(nats_key="key.pem"),
    ("web_certificate", "web_key"): Settings(web_certificate="certificate.pem"),
}
"""by the names of a condition, settings that break it and no other"""


def test_the_defaults_hold_together() -> None:
    check_together(Settings())


@pytest.mark.parametrize("name", scenario_names())
def test_every_shipped_scenario_holds_together(name: str) -> None:
    virtual_settings(chosen_scenario(name), {})


def test_every_condition_can_be_broken() -> None:
    assert set(BROKEN) == {each.names for each in CONDITIONS}


@pytest.mark.parametrize("names", BROKEN, ids=" ".join)
def test_settings_that_break_a_condition_are_refused_with_names_and_reason(names: tuple[str, ...]) -> None:
    settings = BROKEN[names]
    [broken] = [each for each in CONDITIONS if not each.holds(settings)]
    assert broken.names == names
    with pytest.raises(ConflictingSettings) as refused:
        check_together(settings)
    assert all(name in str(refused.value) for name in names)
    assert str(refused.value).endswith(broken.reason)


def test_conflicting_values_are_shown_except_passwords() -> None:
    with pytest.raises(ConflictingSettings, match=r"^heartbeat_real_s=8 and node_lease_real_s=6 cannot"):
        check_together(Settings(heartbeat_real_s=8.0))
    with pytest.raises(ConflictingSettings, match=r"^nats_password and nats_user= cannot"):
        check_together(Settings(nats_password="secret"))


def test_a_start_that_is_slow_is_allowed_where_the_clock_is_fast() -> None:
    check_together(Settings(startup_s=200.0, speed=60.0))


def test_workers_that_are_not_emulated_come_up_when_they_do() -> None:
    check_together(Settings(startup_s=600.0, runner="my.runners:mine"))
