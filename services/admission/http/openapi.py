"""The OpenAPI document, made from the table of operations and the structs themselves."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from schemas.views import ClockView, Problem
from services.admission.http.bodies import JSON_TYPES, YAML_TYPES
from services.admission.http.operations import OPERATIONS, Operation
from shared.domain.idempotency import KEY_LENGTH_MAX

LINES = "application/x-ndjson"
PROBLEM = "application/problem+json"
KEY = "Idempotency-Key"
CLOCK = "Hopyard-Clock"

Json = dict[str, Any]
"""any JSON object"""

_HEADERS = {CLOCK: {"$ref": f"#/components/headers/{CLOCK}"}}
_PATH_PARAMETER = re.compile(r"{(\w+)}")


@cache
def document() -> bytes:
    """The document of this API, made on request: making it takes longer than starting the API."""
    return msgspec.json.encode(openapi(OPERATIONS))


def openapi(operations: Sequence[Operation]) -> Json:
    """The document (OpenAPI 3.1) as a tree for JSON."""
    kinds = {
        Problem,
        ClockView,
        *(each.reply for each in operations),
        *(each.body for each in operations if each.body),
    }
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    paths: dict[str, Json] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "hopyard", "version": "1", "description": "Jobs, nodes and plans of one cluster."},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "headers": {
                CLOCK: {"description": "The cluster's clock.", "content": _content(JSON_TYPES, ClockView)}
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(each: Operation) -> Json:
    kind = LINES if each.lines else JSON_TYPES[0]
    described: Json = {
        "operationId": each.name,
        "summary": each.summary,
        "description": f"For the role {each.role}, and those above it.",
        "parameters": [*_path_parameters(each.path), *_query_parameters(each.query), *_key(each)],
        "responses": {
            str(each.status): {
                "description": "Done.",
                "headers": _HEADERS,
                "content": _content([kind], each.reply),
            },
            "default": {
                "description": "Refused.",
                "headers": _HEADERS,
                "content": _content([PROBLEM], Problem),
            },
        },
    }
    if each.body is not None:
        kinds = [JSON_TYPES[0], YAML_TYPES[0]]
        described["requestBody"] = {"required": True, "content": _content(kinds, each.body)}
    if each.keyed:  # with a repeated key the answer is the same, and nothing is created
        again = {
            "description": "Known already.",
            "headers": _HEADERS,
            "content": _content([kind], each.reply),
        }
        described["responses"]["200"] = again
    return described


def _content(kinds: Sequence[str], body: type) -> Json:
    schema = {"$ref": f"#/components/schemas/{body.__name__}"}
    return {kind: {"schema": schema} for kind in kinds}


def _path_parameters(path: str) -> list[Json]:
    return [_parameter(name, "path", {"type": "string"}) for name in _PATH_PARAMETER.findall(path)]


def _query_parameters(query: type) -> list[Json]:
    (reference,), schemas = msgspec.json.schema_components([query], ref_template="{name}")
    properties: Mapping[str, Json] = schemas[reference["$ref"]]["properties"]
    return [_parameter(name, "query", _inlined(schema, schemas)) for name, schema in properties.items()]


def _inlined(schema: Json, schemas: Mapping[str, Json]) -> Json:
    """A parameter's schema without references, since the types of queries are no components."""
    if "$ref" in schema:
        return schemas[schema["$ref"]]
    if "items" in schema:
        return schema | {"items": _inlined(schema["items"], schemas)}
    if "anyOf" in schema:
        return schema | {"anyOf": [_inlined(each, schemas) for each in schema["anyOf"]]}
    return schema


def _key(each: Operation) -> list[Json]:
    schema = {"type": "string", "minLength": 1, "maxLength": KEY_LENGTH_MAX, "pattern": "^[ -~]+$"}
    return [_parameter(KEY, "header", schema)] if each.keyed else []


def _parameter(name: str, place: str, schema: Json) -> Json:
    style = {"style": "form", "explode": False} if schema.get("type") == "array" else {}
    return {"name": name, "in": place, "required": place == "path", "schema": schema} | style
