"""The manifests say what hopyard knows of itself; that they are Kubernetes' own is for tests/container."""

import asyncio
import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from hopyard.local.stack import free_ports
from schemas.jobs import JobSpec
from schemas.settings import Settings
from services.table import OF_CLUSTER
from shared.runtime.bus.accounts import AGENTS
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.settings import PREFIX
from tests.hopyard.cli_line import command_line
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
    """The variables of all containers and of the settings they share."""
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


def test_no_secret_is_in_a_manifest_or_an_environment() -> None:
    assert not [name for name in environment() if name.endswith(("TOKEN", "PASSWORD"))]
    assert not any(each["kind"] == "Secret" for each in manifests())


def test_each_process_is_given_its_own_account_and_no_other() -> None:
    """As a file where the settings look for it."""
    path = environment()["HOPYARD_NATS_CREDENTIALS"]
    given = {
        container["name"]: [
            mount["subPath"] for mount in container.get("volumeMounts", ()) if mount["name"] == "credentials"
        ]
        for pod in pods().values()
        for container in pod["containers"]
    }
    assert given == {
        **{entry.name: [f"{entry.name}.json"] for entry in OF_CLUSTER},
        "agent": [f"{AGENTS}.json"],
        "nats": [],
    }
    mounts = [
        mount
        for pod in pods().values()
        for container in pod["containers"]
        for mount in container.get("volumeMounts", ())
        if mount["name"] == "credentials"
    ]
    assert {mount["mountPath"] for mount in mounts} == {path}


def test_nats_is_configured_as_everywhere_but_for_its_accounts() -> None:
    ours = (ROOT / "shared/runtime/process/nats.conf").read_text()
    expected = [line for line in ours.splitlines() if not line.startswith(("#", "authorization"))]
    found = one("ConfigMap", "nats")["data"]["nats.conf"].splitlines()
    assert [line for line in found if not line.startswith("include")] == expected
    assert not any("http" in line for line in expected), "monitoring asks for no login"


async def test_nats_as_configured_accepts_accounts_made_by_hopyard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the files of the secret; of the configuration only addresses and paths are others."""
    ran = await asyncio.to_thread(command_line(capsys), "credentials", str(tmp_path))
    assert ran.code == 0, ran.err
    (port,) = free_ports(1)
    text: str = one("ConfigMap", "nats")["data"]["nats.conf"]
    (tmp_path / "etc").mkdir()
    (tmp_path / "hopyard").mkdir()
    (tmp_path / "hopyard/accounts.conf").write_bytes((tmp_path / "credentials/accounts.conf").read_bytes())
    config = tmp_path / "etc/nats.conf"
    config.write_text(
        text.replace("0.0.0.0:4222", f"127.0.0.1:{port}").replace("/data", str(tmp_path / "data"))
    )
    server = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "nats-server"), "-c", str(config)
    )
    try:
        url = f"nats://127.0.0.1:{port}"
        async with contextlib.AsyncExitStack() as buses:
            for user in ("admission", "planner", AGENTS):  # an agent reads by way of a service
                file = tmp_path / "credentials/nats" / f"{user}.json"
                own = Settings(nats_url=url, nats_credentials=str(file))
                bus = await JetStreamBus.connect(own, user, 30.0)
                buses.push_async_callback(bus.close)
                assert await bus.last_seq() == 0
        with pytest.raises(PermissionError):
            await JetStreamBus.connect(Settings(nats_url=url), "planner", 10.0)
    finally:
        server.terminate()
        await server.wait()


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
