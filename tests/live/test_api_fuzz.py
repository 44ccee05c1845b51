"""The whole API under requests that schemathesis makes from its OpenAPI document, valid ones and others."""

import asyncio
import sys
from pathlib import Path

from tests.live.live_builders import stack_and_client

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


async def test_no_request_is_answered_otherwise_than_documented(tmp_path: Path) -> None:
    async with stack_and_client(tmp_path / "data") as (stack, _):
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
