"""The whole API under requests that schemathesis makes from its OpenAPI document, valid ones and others.

The tests share one stack: no answer depends on what was asked before.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import requests
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks

from hopyard.local.stack import Stack
from tests.live.live_builders import stack_and_client

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "missing_required_header",
)
STREAMS = "^/v1/(events|jobs/{id}/output)$"
"""which end when their reader does, not by themselves"""
EXAMPLES = 8
"""of each operation; more by hand, as CONTRIBUTING has it"""
OF_STREAMS = 30
"""of each, and of each kind: valid requests, and others"""
TRIES = settings(
    max_examples=OF_STREAMS, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
SILENT_S = 10.0
SERVER_ERRORS = 500
REFUSED = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with stack_and_client(tmp_path_factory.mktemp("stack") / "data") as (stack, _):
        yield stack


async def test_every_request_is_answered_as_documented(stack: Stack, tmp_path: Path) -> None:
    settings = tmp_path / "schemathesis.toml"
    settings.write_text(f'headers = {{ Authorization = "Bearer {stack.token}" }}\n')
    settings.chmod(0o600)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings)),
        *("run", f"{stack.api_url}/openapi.json", "--checks", ",".join(CHECKS)),
        *("--phases", "coverage,fuzzing", "--exclude-path-regex", STREAMS),
        *("--max-examples", str(EXAMPLES), "--seed", "1", "--request-timeout", "60"),
        *("--generation-database", "none", "--no-color"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=tmp_path,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 300)
    assert process.returncode == 0, said.decode()[-6000:]
    assert "Tested" in said.decode()


async def test_every_request_for_a_stream_is_answered_as_documented(stack: Stack) -> None:
    assert await asyncio.to_thread(_stream_answers, stack) >= {200, 404, 422}


def _stream_answers(stack: Stack) -> set[int]:
    """Every status that was answered. Of what is refused all is looked at, of a stream its head."""
    schema = schemathesis.openapi.from_url(f"{stack.api_url}/openapi.json").include(path_regex=STREAMS)
    own = {"Authorization": f"Bearer {stack.token}"}
    seen: set[int] = set()

    def answered(case: "Case[Any]") -> None:
        request = case.as_transport_kwargs(base_url=stack.api_url, headers=own)
        with requests.request(**request, stream=True, timeout=SILENT_S) as answer:
            seen.add(answer.status_code)
            assert answer.status_code < SERVER_ERRORS
            if answer.ok:
                assert str(answer.status_code) in case.operation.definition.raw["responses"]
                assert answer.headers["Content-Type"] == "application/x-ndjson"
            else:
                case.validate_response(answer, checks=REFUSED)

    for operation in schema.get_all_operations():
        assert isinstance(operation, Ok)
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            seed(1)(TRIES(given(operation.ok().as_strategy(generation_mode=mode))(answered)))()
    return seen
