from pathlib import Path

import msgspec
import pytest

from schemas.settings import FORMER_NAMES, Seconds, Settings
from shared.runtime.settings import describe, load_settings, sources_of
from shared.runtime.shell.handling import TIMER_SLACK_S


def _file(folder: Path, text: str) -> Path:
    path = folder / "hopyard.yaml"
    path.write_text(text)
    return path


def test_without_configuration_the_defaults_hold() -> None:
    assert load_settings({"PATH": "/bin"}) == Settings()


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    path = _file(tmp_path, "round_s: 60\npolicy: fifo\n")
    settings = load_settings({"HOPYARD_ROUND_S": "90"}, path)
    assert (settings.round_s, settings.policy) == (90.0, "fifo")


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    path = _file(tmp_path, "seed: 5")
    assert load_settings({"HOPYARD_SETTINGS": str(path)}).seed == 5


def test_a_setting_answers_to_the_name_that_it_had_in_an_earlier_version(tmp_path: Path) -> None:
    path = _file(tmp_path, "leave_s: 60\nopening_grace_real_s: 3\n")
    environ = {"HOPYARD_FACTS_MAY_LACK": "true", "HOPYARD_OPENING_GRACE_REAL_S": "4"}
    settings = load_settings(environ, path)
    assert settings.leave_before_end_s == 60.0
    assert settings.allow_lost_facts
    assert settings.round_opening_timeout_real_s == 4.0, "the environment wins by whichever name"
    assert sources_of(environ, path)["leave_before_end_s"] == str(path)


@pytest.mark.parametrize("order", [1, -1])
def test_the_present_name_of_a_setting_wins_over_its_former_one(order: int) -> None:
    both = [("HOPYARD_LEAVE_S", "60"), ("HOPYARD_LEAVE_BEFORE_END_S", "90")]
    assert load_settings(dict(both[::order])).leave_before_end_s == 90.0


def test_a_bad_value_is_named_as_it_was_written() -> None:
    with pytest.raises(ValueError, match="HOPYARD_LEAVE_S"):
        load_settings({"HOPYARD_LEAVE_S": "soon"})


def test_former_names_lead_to_settings_and_are_no_settings() -> None:
    names = set(Settings.__struct_fields__)
    assert names.issuperset(FORMER_NAMES.values())
    assert names.isdisjoint(FORMER_NAMES)


def test_an_empty_file_changes_no_setting(tmp_path: Path) -> None:
    assert load_settings({}, _file(tmp_path, "# all defaults\n")) == Settings()


def test_text_of_the_environment_becomes_each_kind_of_value() -> None:
    environ = {"HOPYARD_WEB_PORT": "8080", "HOPYARD_GAP": "0.5", "HOPYARD_NATS_TOKEN": "123"}
    settings = load_settings(environ)
    assert (settings.web_port, settings.gap, settings.nats_token) == (8080, 0.5, "123")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"HOPYARD_ROUNDS_S": "1"}, "HOPYARD_ROUNDS_S: there is no such setting; .*HOPYARD_ROUND_S"),
        ({"HOPYARD_QQQ": "1"}, "HOPYARD_QQQ: there is no such setting$"),
        ({"HOPYARD_ROUND_S": "-1"}, "HOPYARD_ROUND_S: .* >= 1.*'-1'"),
        ({"HOPYARD_ROUND_S": "1e-9"}, "HOPYARD_ROUND_S: it must be a number >= 1\\.0 "),
        ({"HOPYARD_HEARTBEAT_REAL_S": "1e-9"}, "HOPYARD_HEARTBEAT_REAL_S: it must be a number >= 0.001 "),
        ({"HOPYARD_ROUND_S": "soon"}, "HOPYARD_ROUND_S: .*'soon'"),
        ({"HOPYARD_CLOCK_ORIGIN": "nan"}, "HOPYARD_CLOCK_ORIGIN: "),
        ({"HOPYARD_SOLVER": "luck"}, "HOPYARD_SOLVER: .*'luck'"),
    ],
)
def test_a_mistake_in_the_environment_is_named(environ: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load_settings(environ)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("colour: red", "hopyard.yaml: colour: there is no such setting"),
        ("web_port: 70000", "hopyard.yaml: web_port: .*70000"),
        ("seed: 1.5", "hopyard.yaml: seed: "),
        ("policy:", "hopyard.yaml: policy: "),
        ("[1, 2]", "hopyard.yaml: settings are a mapping"),
        ("a: [", "hopyard.yaml:2: did not find"),
        ("seed: 1\nround_s: 60\nseed: 2", "hopyard.yaml:3: .*seed"),
        ("[" * 100_000, "hopyard.yaml:1: too deep"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load_settings({}, _file(tmp_path, text))


def test_no_time_limit_is_less_than_the_slack_of_a_timer() -> None:
    assert msgspec.convert(0.001, Seconds) > TIMER_SLACK_S
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(TIMER_SLACK_S, Seconds)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.yaml: No such file"):
        load_settings({}, tmp_path / "nowhere.yaml")


def test_the_variable_that_selects_a_service_is_no_setting() -> None:
    assert load_settings({"HOPYARD_SERVICE": "planner"}) == Settings()


def test_every_setting_is_described() -> None:
    described = {
        setting.name: setting for setting in describe(Settings(seed=5), {"seed": "environment"}).settings
    }
    assert list(described) == [field.name for field in msgspec.structs.fields(Settings)]
    seed, gap = described["seed"], described["gap"]
    assert (seed.value, seed.default, seed.source) == (5, 1, "environment")
    assert (gap.value, gap.default, gap.source) == (0.01, 0.01, "default")
    assert seed.doc == "seed of all random numbers: of the emulated world and of workloads"
    assert [name for name, each in described.items() if not each.doc] == []


def test_secrets_are_not_shown() -> None:
    settings = Settings(nats_token="t", api_token="t", nats_url="nats://me:secret@there:4222")
    described = {setting.name: setting.value for setting in describe(settings, {}).settings}
    assert (described["nats_token"], described["api_token"], described["nats_password"]) == ("***", "***", "")
    assert described["nats_url"] == "nats://***@there:4222"


def test_the_source_of_a_setting_is_who_set_it_last(tmp_path: Path) -> None:
    file = _file(tmp_path, "round_s: 60\npolicy: fifo\nseed: 3\n")
    environ = {
        "HOPYARD_SETTINGS": str(file),
        "HOPYARD_GAP": "0.5",
        "HOPYARD_SEED": "4",
        "HOPYARD_POLICY": "hops",
        "HOPYARD_SOURCES": '{"policy": "command line", "speed": "the stack itself"}',
    }
    assert sources_of(environ) == {
        "round_s": str(file),
        "gap": "environment",
        "seed": "environment",
        "policy": "command line",
    }


def test_a_file_without_an_end_is_not_read_to_its_end() -> None:
    """Reading the file took all of the machine's memory."""
    with pytest.raises(ValueError, match=r"^/dev/zero: is larger than 16777216 bytes$"):
        load_settings({"HOPYARD_SETTINGS": "/dev/zero"})
