"""Answers HTTP requests until the process has its service: with 503 and the reason."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from schemas.settings import Settings
from shared.runtime.process.web import WAITS, Site, listen, tls_of, waiting_application

PATIENCE_S = 1.0
"""before it listens: a service that finds NATS at once listens itself sooner"""


class WaitingSite:
    """Listens at the service's address, from a while after its block begins until `close`."""

    def __init__(self, settings: Settings) -> None:
        self.why: Callable[[], str] = lambda: WAITS
        """the reason in its answers"""
        self._settings = settings
        self._site: Site | None = None

    async def __aenter__(self) -> Self:
        self._opening = asyncio.create_task(self._open())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Make room for the service. Harmless when it was closed."""
        self._opening.cancel()
        await asyncio.wait([self._opening])
        site, self._site = self._site, None
        if site is not None:
            await site.close()

    async def _open(self) -> None:
        await asyncio.sleep(PATIENCE_S)
        settings = self._settings
        with suppress(OSError, ValueError):  # of a port or certificate: the service itself will say it
            self._site = await listen(
                waiting_application(settings, lambda: self.why()),  # noqa: PLW0108 - the reason changes
                settings.web_host,
                settings.web_port,
                tls_of(settings),
            )
