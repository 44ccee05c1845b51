"""The files for Prometheus and Grafana, and the metrics that they name."""

import json
import re
from typing import Any

import yaml

from tests.paths import ROOT

RULES = ROOT / "deploy" / "prometheus" / "hopyard.yaml"
RULES_TEST = ROOT / "deploy" / "prometheus" / "hopyard.test.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "hopyard.json"
METRIC = re.compile(r"\bhopyard_\w+")


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    return list(json.loads(DASHBOARD.read_text("utf-8"))["panels"])


def expressions() -> list[str]:
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [rule["expr"] for rule in rules()] + shown


def metrics_named() -> set[str]:
    return {name for expression in expressions() for name in METRIC.findall(expression)}
