"""Small programs as processes, and waiting for what they do."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from hopyard.local.child import Program
from hopyard.local.template import Template

SLEEPS = "import time\nprint('here', flush=True)\ntime.sleep(600)\n"


async def until(condition: Callable[[], object], limit_s: float = 60.0) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.02)


def printed(program: Program) -> str:
    return program.log.read_text() if program.log.exists() else ""


@asynccontextmanager
async def template(*imports: str) -> AsyncIterator[Template]:
    one = Template(imports)
    try:
        yield one
    finally:
        await one.end()
