"""The manifests say what hopyard knows of itself; that they are Kubernetes' own is for tests/container."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from schemas.jobs import JobSpec
from schemas.settings import Settings
from services.table import OF_CLUSTER
from shared.runtime.settings import PREFIX
from tests.paths import ROOT

FOLDER = ROOT / "deploy/kubernetes"
Manifest = dict[str, Any]


def manifests() -> Iterator[Manifest]:
    for name in yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]:
        yield from yaml.safe_load_all((FOLDER / name).read_text())


def one(kind: str, name: str) -> Manifest:
    [found] = [each for each in manifests() if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pods() -> dict[str, Manifest]:
    """Specifications of pods, by name."""
    kinds = {"Deployment", "StatefulSet", "DaemonSet"}
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in manifests()
        if each["kind"] in kinds
    }


def environment() -> dict[str, Any]:
    """Of all containers and the settings they share: what is set, and to what."""
    found = dict(one("ConfigMap", "hopyard")["data"])
    for pod in pods().values():
        for container in pod["containers"]:
            for variable in container.get("env", ()):
                found[variable["name"]] = variable.get("value", variable.get("valueFrom"))
    return found


def test_every_manifest_is_applied() -> None:
    listed = set(yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"])
    assert listed == {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}


def test_every_service_runs_once_and_is_looked_at_where_it_listens() -> None:
    containers = pods()["services"]["containers"]
    assert [container["name"] for container in containers] == [entry.name for entry in OF_CLUSTER]
    ports = set()
    for container in containers:
        variables = {variable["name"]: variable.get("value") for variable in container["env"]}
        [port] = container["ports"]
        assert str(port["containerPort"]) == variables["HOPYARD_WEB_PORT"]
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"]}
        ports.add(port["containerPort"])
    assert len(ports) == len(containers)


def test_all_variables_are_settings_that_take_their_values() -> None:
    fields = {field.name for field in msgspec.structs.fields(Settings)}
    given = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environment().items()
        if name.startswith(PREFIX)
    }
    assert set(given) - {"node"} <= fields
    plain = {name: value for name, value in given.items() if isinstance(value, str)}
    msgspec.convert(plain, Settings, strict=False)


def test_no_token_has_a_value() -> None:
    for name in ("HOPYARD_NATS_TOKEN", "HOPYARD_API_TOKEN", "TOKEN"):
        assert set(environment()[name]) == {"secretKeyRef"}
    assert not any(each["kind"] == "Secret" for each in manifests())
    assert "authorization { token: $NATS_TOKEN }" in one("ConfigMap", "nats")["data"]["nats.conf"]


def test_nats_is_configured_as_everywhere() -> None:
    ours = (ROOT / "shared/runtime/process/nats.conf").read_text()
    expected = [line for line in ours.splitlines() if not line.startswith("#")]
    assert one("ConfigMap", "nats")["data"]["nats.conf"].splitlines() == expected


def test_an_agent_has_time_to_save_and_all_gpus_of_its_node() -> None:
    [grace_s] = [field.default for field in msgspec.structs.fields(JobSpec) if field.name == "grace_s"]
    agents = pods()["agents"]
    assert agents["terminationGracePeriodSeconds"] >= 2 * grace_s
    [agent] = agents["containers"]
    assert agent["resources"]["limits"]["nvidia.com/gpu"] > 0
    mounted = {mount["mountPath"] for mount in agent["volumeMounts"]}
    assert {environment()["HOPYARD_JOBS_FOLDER"], environment()["HOPYARD_RUN_FOLDER"]} <= mounted
    [jobs] = [volume for volume in agents["volumes"] if volume["name"] == "jobs"]
    claim = one("PersistentVolumeClaim", jobs["persistentVolumeClaim"]["claimName"])
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


@pytest.mark.parametrize("file", ["Dockerfile", "deploy/kubernetes/agent.Dockerfile"])
def test_images_are_built_from_all_packages(file: str) -> None:
    packages = re.findall(r'"(\w+)"', _line(ROOT / "pyproject.toml", "packages = ["))
    copied = re.findall(r"^COPY (\w+) ", (ROOT / file).read_text(), re.MULTILINE)
    sent = (ROOT / ".dockerignore").read_text().split()
    assert set(packages) <= set(copied)
    assert {f"!{package}" for package in packages} <= set(sent)


def _line(file: Path, begin: str) -> str:
    return next(line for line in file.read_text().splitlines() if line.startswith(begin))
