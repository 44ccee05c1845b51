"""The document that describes the API."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from services.admission.http.openapi import openapi
from services.admission.http.operations import OPERATIONS, Operation
from tests.services.admission.admission_world import serving

DOCUMENT: dict[str, Any] = openapi(OPERATIONS)


def references(tree: object) -> Iterator[str]:
    match tree:
        case {"$ref": str(reference)}:
            yield reference
        case dict():
            for each in tree.values():
                yield from references(each)
        case list() | tuple():
            for each in tree:
                yield from references(each)


async def test_every_route_is_described_and_nothing_else() -> None:
    async with serving() as api:
        document = await api.body("GET", "/openapi.json")
        described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
        assert api.client.app is not None
        routed = {
            (route.method, route.resource.canonical)
            for route in api.client.app.router.routes()
            if route.resource is not None and route.method != "HEAD"
        }
        page = {("GET", "/"), ("GET", "/page/{name}")}
        assert described == routed - page - {("GET", "/openapi.json")}


async def test_the_document_needs_no_token() -> None:
    async with serving(api_token="secret") as api:
        assert (await api.body("GET", "/openapi.json"))["openapi"] == "3.1.0"


def test_every_reference_resolves() -> None:
    found = set(references(DOCUMENT))
    assert "#/components/schemas/JobFile" in found
    schemas = DOCUMENT["components"]["schemas"]
    assert all(
        reference.rpartition("/")[2] in schemas | DOCUMENT["components"]["headers"] for reference in found
    )
    assert {reference for reference in found if not reference.startswith("#/components/schemas/")} == {
        "#/components/headers/Hopyard-Clock"
    }


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_an_operation_has_a_name_its_path_parameters_and_both_ends(operation: Operation) -> None:
    described = DOCUMENT["paths"][operation.path][operation.method.lower()]
    assert described["operationId"] == operation.name
    in_path = {each["name"] for each in described["parameters"] if each["in"] == "path"}
    assert in_path == set(re.findall(r"{(\w+)}", operation.path))
    assert {str(operation.status), "default"} <= described["responses"].keys()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_response_is_said_to_have_the_clusters_clock(operation: Operation) -> None:
    described = DOCUMENT["paths"][operation.path][operation.method.lower()]
    assert all("Hopyard-Clock" in response["headers"] for response in described["responses"].values())


def test_names_are_given_once() -> None:
    assert len({each.name for each in OPERATIONS}) == len(OPERATIONS)


def test_the_filters_of_a_list_are_described() -> None:
    parameters = DOCUMENT["paths"]["/v1/jobs"]["get"]["parameters"]
    by_name = {each["name"]: each["schema"] for each in parameters}
    assert by_name.keys() == {"state", "project", "user", "sort", "limit", "after"}
    assert by_name["limit"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
    assert "queued" in str(by_name["state"])
