"""One table of services: packages, images, compose and docs name the same ones, in the same order."""

import importlib.util
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from hopyard.local.stack import SERVICES
from services.table import OF_CLUSTER, TABLE, ServiceEntry

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
NOT_OURS = {"nats", "loadgen"}


def test_every_package_of_a_service_is_in_the_table() -> None:
    packages = {path.parent.name for path in (ROOT / "services").glob("*/__main__.py")}
    assert packages == {entry.name for entry in TABLE}


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name)
def test_a_service_can_be_run_and_built(entry: ServiceEntry) -> None:
    assert importlib.util.find_spec(f"{entry.module}.__main__") is not None
    assert callable(entry.build())
    assert entry.build().__module__ == f"{entry.module}.build"


def test_compose_runs_the_services_of_the_table_in_its_order() -> None:
    assert [name for name in COMPOSE["services"] if name not in NOT_OURS] == [entry.name for entry in TABLE]


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name)
def test_an_image_has_what_its_service_needs_and_no_more(entry: ServiceEntry) -> None:
    service = COMPOSE["services"][entry.name]
    extras = {"EXTRAS": f"--extra {entry.extra}"} if entry.extra else {}
    assert service["image"] == f"hopyard/{entry.name}"
    assert service["build"]["args"] == {"SERVICE": entry.name} | extras
    assert (service.get("scale", 1) > 1) == entry.on_every_node


def test_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {entry.extra for entry in TABLE if entry.extra} <= set(project["optional-dependencies"])


def test_the_embedded_stack_runs_them_all() -> None:
    assert tuple(entry.name for entry in OF_CLUSTER) == SERVICES


@pytest.mark.parametrize("page", ["docs/architecture.md", "services/__init__.py"])
def test_the_docs_name_every_service(page: str) -> None:
    text = (ROOT / page).read_text()
    assert [entry.name for entry in TABLE if entry.name not in text] == []
