"""A stack that asks for a token, as `hopyard up` runs it, and a proxy in front of it with a prefix."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from hopyard.local.credentials import own_token
from hopyard.local.stack import free_ports
from hopyard.local.stack_settings import HOST
from loadgen.scenarios import arrivals, load_scenario

SPEED = 120.0
READY_LIMIT_S = 120.0
STOP_LIMIT_S = 60.0
SCENARIO = "tiny"


class RunningStack:
    def __init__(self, data: Path, port: int) -> None:
        self.data = data
        self.port = port
        self.url = f"http://{HOST}:{port}/"
        self.token = own_token(data)

    def call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - as the API answers
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else msgspec.json.encode(body)
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def refused(self, path: str, token: str) -> None:
        """Ask with a token that is not accepted."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {token}"})
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(request, timeout=30)

    def submit(self, name: str, samples: float = 1e5, user: str = "", **workload: object) -> str:
        """A job that takes a second or so where it runs alone; its id."""
        what = {"model": "resnet18", "dataset": "cifar10", "batch_size": 256} | workload
        job = {"name": name, "user": user, "workload": what, "gpus": [1, 2], "samples": samples}
        return str(self.call("POST", "v1/jobs", job)["job_id"])

    def submit_all(self) -> int:
        """The jobs of the scenario; how many."""
        jobs = arrivals(load_scenario(SCENARIO), seed=1)
        for arrival in jobs:
            self.call("POST", "v1/jobs", arrival.job)
        return len(jobs)

    @contextmanager
    def drained(self) -> Iterator[None]:
        """While it lasts no job starts: those that come wait."""
        nodes = [each["node"]["node_id"] for each in self.call("GET", "v1/nodes")["nodes"]]
        for node in nodes:
            self.call("POST", f"v1/nodes/{node}/drain")
        try:
            yield
        finally:
            for node in nodes:
                self.call("DELETE", f"v1/nodes/{node}/drain")

    def kill(self, service: str) -> None:
        """As kill -9; the stack starts it again."""
        stack = json.loads((self.data / "stack.json").read_text())
        os.kill(stack["pids"][service], signal.SIGKILL)


@contextmanager
def stack(data: Path) -> Iterator[RunningStack]:
    (port,) = free_ports(1)
    command = [sys.executable, "-P", "-m", "hopyard.cli", "up", "--scenario", SCENARIO]
    options = ["--speed", str(SPEED), "--port", str(port), "--data", str(data)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOPYARD_")}
    own = {"XDG_STATE_HOME": str(data / "state")}
    with (data / "up.log").open("wb") as log:
        process = subprocess.Popen([*command, *options], env=environ | own, stdout=log, stderr=log)
        try:
            _wait(process, data / "stack.json", data / "up.log")
            yield RunningStack(data, port)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_LIMIT_S)


def _wait(process: subprocess.Popen[bytes], sign: Path, log: Path) -> None:
    limit = time.monotonic() + READY_LIMIT_S
    while not sign.exists():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < limit, log.read_text()
        time.sleep(0.1)


# ---- a proxy


@contextmanager
def proxy(port: int, prefix: str) -> Iterator[str]:
    """What comes under the prefix goes to the port without it; everything else is not found. Its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _pass_on(self, port, prefix)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the library's name
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_address[1]}{prefix}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _pass_on(handler: BaseHTTPRequestHandler, port: int, prefix: str) -> None:
    if not handler.path.startswith(prefix):
        handler.send_error(404)
        return
    behind = http.client.HTTPConnection(HOST, port, timeout=60)
    try:
        behind.request(
            "GET", "/" + handler.path.removeprefix(prefix), headers=_kept(dict(handler.headers.items()))
        )
        answer = behind.getresponse()
        handler.send_response(answer.status)
        for name, value in _kept(dict(answer.getheaders())).items():
            handler.send_header(name, value)
        handler.end_headers()
        while part := answer.read1(65_536):
            handler.wfile.write(part)
            handler.wfile.flush()
    except OSError:
        pass  # the browser hung up
    finally:
        behind.close()


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    own = {"host", "connection", "transfer-encoding", "content-length"}
    return {name: value for name, value in headers.items() if name.lower() not in own}
