"""Alert rules and the dashboard are in form; that their metrics exist is tested on a stack that runs."""

import json
import shutil
import subprocess

import pytest

from tests.deploy.monitoring import DASHBOARD, RULES, RULES_TEST, expressions, metrics_named, panels, rules

PROMTOOL = shutil.which("promtool")


def test_every_alert_has_a_severity_a_summary_and_a_place_to_look() -> None:
    assert {rule["labels"]["severity"] for rule in rules()} == {"page", "ticket"}
    assert all(rule["annotations"].keys() == {"summary", "look"} for rule in rules())
    assert len({rule["alert"] for rule in rules()}) == len(rules())


def test_every_panel_has_a_place_of_its_own_and_asks_the_source_that_is_chosen() -> None:
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()}
    assert len(places) == len({panel["id"] for panel in panels()}) == len(panels())
    assert all(
        target["datasource"]["uid"] == "${source}" for panel in panels() for target in panel["targets"]
    )
    assert '"name": "source"' in DASHBOARD.read_text("utf-8")


def test_every_expression_is_about_metrics() -> None:
    assert [one for one in expressions() if "hopyard_" not in one] == ['up{job="hopyard"} == 0']
    assert len(metrics_named()) > 20


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")
@pytest.mark.parametrize("ask", [["check", "rules", str(RULES)], ["test", "rules", str(RULES_TEST)]])
def test_promtool_finds_no_fault(ask: list[str]) -> None:
    done = subprocess.run([str(PROMTOOL), *ask], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_reads_the_whole_dashboard() -> None:
    """Grafana's own model of a dashboard has every field of ours, with the values that we wrote."""
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins")
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")
    plugins.register_default_plugins()
    ours = json.loads(DASHBOARD.read_text("utf-8"))
    read = json.loads(encoder.JSONEncoder().encode(models.Dashboard.from_json(ours)))
    assert lost(ours, read) == []


def lost(ours: object, read: object, place: str = "") -> list[str]:
    """Where what was read is not what we wrote; it may have more."""
    match ours, read:
        case dict(), dict():
            return [
                one for key in ours for one in lost(ours[key], read.get(key, "nothing"), f"{place}/{key}")
            ]
        case list(), list() if len(ours) == len(read):
            pairs = enumerate(zip(ours, read, strict=True))
            return [one for number, (mine, its) in pairs for one in lost(mine, its, f"{place}/{number}")]
        case _:
            return [] if ours == read else [f"{place}: {ours!r}, read as {read!r}"]
