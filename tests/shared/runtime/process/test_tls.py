"""HTTP over TLS: served by the settings, asked by the health check."""

import ssl
import sys
from asyncio import create_subprocess_exec
from pathlib import Path

import aiohttp
import aiohttp.web
import pytest

from schemas.settings import Settings
from shared.runtime.process.web import listen, tls_of

PAIR = Path(__file__).parents[3] / "hopyard" / "api" / "certificate"
SETTINGS = Settings(web_certificate=str(PAIR / "certificate.pem"), web_key=str(PAIR / "key.pem"))


async def ready(_: aiohttp.web.Request) -> aiohttp.web.Response:
    return aiohttp.web.Response()


def application() -> aiohttp.web.Application:
    app = aiohttp.web.Application()
    app.router.add_get("/readyz", ready)
    return app


async def healthy(**environ: str) -> bool:
    module = "shared.runtime.process.healthcheck"
    process = await create_subprocess_exec(sys.executable, "-m", module, env=environ)
    return await process.wait() == 0


async def test_with_a_certificate_http_accepts_only_tls() -> None:
    site = await listen(application(), "127.0.0.1", 0, tls_of(SETTINGS))
    trusted = ssl.create_default_context(cafile=str(PAIR / "certificate.pem"))
    port = str(site.port)
    try:
        async with aiohttp.ClientSession() as session:
            async with session.get(
                f"https://127.0.0.1:{port}/readyz", ssl=trusted, server_hostname="localhost"
            ) as answer:
                assert answer.status == 200
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://127.0.0.1:{port}/readyz")
        assert await healthy(HOPYARD_WEB_PORT=port, HOPYARD_WEB_CERTIFICATE="certificate.pem")
        assert not await healthy(HOPYARD_WEB_PORT=port)
    finally:
        await site.close()


async def test_without_one_it_is_in_the_clear() -> None:
    assert tls_of(Settings()) is None
    site = await listen(application(), "127.0.0.1", 0)
    try:
        assert await healthy(HOPYARD_WEB_PORT=str(site.port))
    finally:
        await site.close()


def test_an_invalid_certificate_is_named(tmp_path: Path) -> None:
    file = tmp_path / "certificate.pem"
    file.write_text("nothing")
    with pytest.raises(ValueError, match=str(file)):
        tls_of(Settings(web_certificate=str(file), web_key=str(file)))
    with pytest.raises(OSError, match="No such file"):
        tls_of(Settings(web_certificate=str(tmp_path / "none"), web_key=str(file)))
