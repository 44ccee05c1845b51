"""Alert rules and the dashboard are in form; that their metrics exist is tested on a stack that runs."""

import json
import shutil
import subprocess
from pathlib import Path

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


OF_EACH_MONITOR = {
    'hopyard_jobs{state="queued"': 3,
    'hopyard_nodes{state="alive"': 4,
    'hopyard_gpus_busy{type="t4"': 2,
    'hopyard_gpus{type="t4"': 8,
    "hopyard_latency_ratio_mean{": 1.5,
    "hopyard_cluster_throughput{": 6,
    "hopyard_plan_decision_seconds{": 0.5,
    "hopyard_plan_solve_seconds{": 0.25,
    "hopyard_plan_gap_ratio{": 0.125,
    "hopyard_admission_jobs_open{": 5,
}
"""what every instance says of the whole cluster, here of two services as if they were one"""
ONLY_OWN = {
    "hopyard_plans_stood_in_total{": 2,
    "hopyard_plans_unsolved_total{": 3,
    'hopyard_admission_refused_total{reason="unknown"': 1,
}
"""what an instance counts that no other counts, so many a minute"""
SHOWN: dict[str, list[tuple[str, float]]] = {
    "Jobs by state": [('{state="queued"}', 3)],
    "GPUs in use, of those alive": [('{type="t4"}', 0.25)],
    "Nodes by state": [('{state="alive"}', 4)],
    "Mean latency ratio of jobs that ended lately": [("{}", 1.5)],
    "Cluster throughput, in single GPUs": [("{}", 6)],
    "Seconds of the last plan": [("{}", 0.5), ("{}", 0.25)],
    "Proven gap of the last plan": [("{}", 0.125)],
    "Plans without the policy, or without solving, an hour": [("{}", 2 * 60 * 2), ("{}", 2 * 60 * 3)],
    "Requests refused, an hour": [('{reason="unknown"}', 2 * 60)],
    "Unfinished jobs that admission counts": [("{}", 5)],
}
"""a series of each query"""
BY_INSTANCE = "{{instance}}"


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")
def test_the_dashboard_counts_the_cluster_once_if_services_have_two_instances(tmp_path: Path) -> None:
    names = ("one:9000", "two:9000")
    series = [
        *((metric, f"{value}x90") for metric, value in OF_EACH_MONITOR.items()),
        *((metric, f"0+{value}x90") for metric, value in ONLY_OWN.items()),
    ]
    asked = [
        {"expr": target["expr"], "eval_time": "80m", "exp_samples": [{"labels": labels, "value": value}]}
        for panel in panels()
        if panel["title"] in SHOWN
        for target, (labels, value) in zip(panel["targets"], SHOWN[panel["title"]], strict=True)
    ]
    inputs = [
        {"series": f'{metric}{"," * ("=" in metric)}instance="{name}"}}', "values": values}
        for metric, values in series
        for name in names
    ]
    file = tmp_path / "test.yaml"
    file.write_text(
        json.dumps({"tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": asked}]})
    )
    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_other_panel_is_about_single_instances_or_adds_up_what_each_has_done() -> None:
    others = [
        target["expr"]
        for panel in panels()
        if panel["title"] not in SHOWN
        for target in panel["targets"]
        if BY_INSTANCE not in target["legendFormat"]
    ]
    assert [one for one in others if "hopyard_http_request_seconds" not in one] == []


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
