"""The stack of compose.yaml under a test's control: built, started, hurt, taken down."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testcontainers.compose import DockerCompose

from hopyard.local.stack import free_ports

ROOT = Path(__file__).parents[2]
SERVICES = ("admission", "profiler", "estimator", "planner", "placer", "monitor", "agent")
LIMIT_S = 300.0
HEALTHY_LIMIT_S = 90.0
LOG_LINES = "60"
TOKEN = "of the containers"
"""an operator's"""


def command(*words: str, environ: dict[str, str] | None = None, limit_s: float = LIMIT_S) -> str:
    """What a program printed. Raises AssertionError with what it said when it failed."""
    done = subprocess.run(
        words,
        cwd=ROOT,
        env=os.environ | (environ or {}),
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


class ComposeStack:
    """A project of its own: another stack on this machine is not touched."""

    def __init__(self, folder: Path) -> None:
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self._compose = DockerCompose(
            ROOT,
            compose_file_name=[str(ROOT / "compose.yaml"), str(_host_network(folder))],
            env_file=str(_environment(folder, self.port)),
        )

    def build(self) -> None:
        """All images. The older builder takes them in turn, or it would make the common layers many times."""
        in_turn = {"COMPOSE_PARALLEL_LIMIT": "1"} if os.environ.get("DOCKER_BUILDKIT") == "0" else {}
        self.run("--profile", "load", "build", environ=in_turn)

    @contextmanager
    def up(self, failed: Callable[[], object]) -> Iterator[None]:
        """Healthy within the block, and gone after it, whatever happens.

        When it does not get healthy, or `failed` says so in the end, its logs are printed.
        """
        well = False
        try:
            self._compose.start()
            yield
            well = not failed()
        finally:
            if not well:
                print(self.logs())
            self.run("--profile", "load", "down", "--volumes", "--remove-orphans", "--timeout", "5")

    def run(self, *words: str, environ: dict[str, str] | None = None) -> str:
        return command(*self._compose.docker_compose_command(), *words, environ=environ)

    def logs(self) -> str:
        return self.run("--profile", "load", "logs", "--no-color", "--tail", LOG_LINES)

    def containers(self, service: str) -> list[str]:
        """Ids of a service's containers, running or not."""
        found = self.run("--profile", "load", "ps", "--all", "--quiet", service).split()
        assert found, f"there is no container of {service}"
        return found

    def restart_killed(self, service: str) -> None:
        """kill -9, start again, and wait until it is healthy."""
        container = self.containers(service)[0]
        command("docker", "kill", "--signal", "KILL", container)
        command("docker", "start", container)
        await_health(container)

    def exit_codes(self) -> dict[str, int]:
        """By container name, of those that have ended."""
        lines = self.run("ps", "--all", "--format", "json").splitlines()
        states = [json.loads(line) for line in lines]
        return {state["Name"]: state["ExitCode"] for state in states if state["State"] == "exited"}


def await_health(container: str) -> None:
    """Wait until a container's health check says it is well; one without such a check always is."""
    template = "{{if .State.Health}}{{.State.Health.Status}}{{else}}healthy{{end}}"
    until = time.monotonic() + HEALTHY_LIMIT_S
    while (health := command("docker", "inspect", "--format", template, container).strip()) != "healthy":
        assert time.monotonic() < until, f"{container} is {health}"
        time.sleep(0.2)


def _environment(folder: Path, port: int) -> Path:
    """A minute of the cluster is a second here."""
    path = folder / "stack.env"
    path.write_text(
        f"""\
COMPOSE_PROJECT_NAME=hopyard-test-{os.getpid()}
HOPYARD_PORT=127.0.0.1:{port}
HOPYARD_NATS_TOKEN=007
HOPYARD_API_TOKEN={TOKEN}
HOPYARD_CLUSTER=tiny
HOPYARD_ROUND_S=120
HOPYARD_SPEED=60
HOPYARD_CLOCK_ORIGIN={time.time()}
"""
    )
    return path


def _host_network(folder: Path) -> Path:
    """Builds that share the host's network get their packages wherever the host does."""
    path = folder / "host-network.yaml"
    build = {"build": {"network": "host"}}
    path.write_text(json.dumps({"services": dict.fromkeys((*SERVICES, "loadgen"), build)}))
    return path
