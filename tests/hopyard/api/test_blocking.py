"""Requests by the standard library alone: what only this way of sending them promises."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from hopyard.api.client import Client
from hopyard.api.connect import call
from hopyard.failures import Unreachable
from schemas.views import PolicyChoice
from tests.hopyard.cli_server import canned_api

CERTIFICATE = Path(__file__).parent / "certificate"
"""of localhost, signed by itself, for a hundred years"""


class ClosesWithoutAWord(BaseHTTPRequestHandler):
    """A server that announces an open connection, as HTTP/1.1 has it, and closes it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "16")
        self.end_headers()
        self.wfile.write(b'{"policy":"las"}')
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Nothing: it is no news that a test asks."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


async def chosen(client: Client) -> PolicyChoice:
    return await client.policy()


def test_a_connection_closed_by_the_server_is_opened_again() -> None:
    async def many(client: Client) -> list[PolicyChoice]:
        return [await client.policy() for _ in range(20)]

    with serving(ClosesWithoutAWord) as url:
        assert call(url, many) == [PolicyChoice(policy="las")] * 20


def test_an_action_that_awaits_anything_else_is_a_fault_of_its_author() -> None:
    async def sleeps(_: Client) -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="in an event loop"):
        call("http://127.0.0.1:9", sleeps)


@contextmanager
def canned_tls() -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE / "certificate.pem", CERTIFICATE / "key.pem")
    with canned_api(context) as api:
        api.says("GET /v1/policy", PolicyChoice(policy="las"))
        yield api.url.replace("127.0.0.1", "localhost")


def test_a_certificate_of_a_known_authority_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE / "certificate.pem"))
    with canned_tls() as url:
        assert call(url, chosen) == PolicyChoice(policy="las")


def test_a_certificate_of_an_unknown_authority_is_refused_with_the_reason() -> None:
    with (
        canned_tls() as url,
        pytest.raises(Unreachable, match="is not valid here: self-signed"),
    ):
        call(url, chosen)


def test_a_certificate_for_another_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE / "certificate.pem"))
    with canned_tls() as url, pytest.raises(Unreachable, match="not valid for"):
        call(url.replace("localhost", "127.0.0.1"), chosen)
