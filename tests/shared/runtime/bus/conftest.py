"""A guarded server for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hopyard.local.accounts import (
    admitted_any,
)
from tests.guarded_nats import Guarded


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    stack = Guarded(tmp_path)
    admitted_any(tmp_path)
    await stack.server.start()
    try:
        async with stack.bus("admission"):
            yield stack
    finally:
        await stack.server.stop()
