"""Runs a rank in a container: a prefix to its command, for docker or podman.

The engine puts the processes into control groups of its own, so it sets their limits, kills them, and knows
whether the kernel killed one for want of memory. It knows that until the container is removed. The agent
removes it at the end of the worker.
"""

import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from schemas.jobs import JobSpec
from shared.domain.folders import plain_name

ENGINES = ("docker", "podman")
REMOVAL_LIMIT_S = 20.0
ANSWER_LIMIT_S = 20.0
OUT_OF_MEMORY = "{{.State.OOMKilled}}"
"""template of an engine's answer about a container"""
MARKS = ':,"'
"""characters that separate the parts of an engine's option"""


class NoEngine(Exception):
    """The node's container engine does not answer."""


class Container(msgspec.Struct, frozen=True, kw_only=True):
    engine: str
    """program of the engine"""
    name: str
    user: str
    """uid:gid"""
    environment: Path
    """file with the rank's environment; the engine's client itself runs in the agent's environment, so that a
    job cannot influence it"""
    folders: Sequence[str]
    """folders that are mounted, under the same paths as outside"""
    gpus: Sequence[str]


def engine() -> str | None:
    """The path of the first engine that the node has; None: it has none."""
    return next(filter(None, map(shutil.which, ENGINES)), None)


def answers(engine: str) -> bool:
    """Whether the engine can be asked for containers now. Blocks."""
    try:
        asked = subprocess.run(  # noqa: S603 - the engine's program, found on our path
            [engine, "version"],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=ANSWER_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def check_folders(folders: Iterable[str]) -> None:
    """Raises ValueError for a folder whose name would be read as further options of an engine."""
    for folder in folders:
        if set(folder) & set(MARKS):
            raise ValueError(
                f"{folder}: a folder with one of {MARKS} in its name cannot be mounted in a container"
            )


def write_environment(path: Path, variables: Mapping[str, str]) -> None:
    """Write an environment file, a line a variable.

    Raises OSError; ValueError for a value of several lines.
    """
    lines = [f"{name}={value}" for name, value in variables.items()]
    if broken := next(
        (name for name, line in zip(variables, lines, strict=True) if set("\r\n") & set(line)), ""
    ):
        raise ValueError(f"{broken}: a variable with more than one line cannot be passed to a container")
    path.touch(0o600)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def wrapped(container: Container, spec: JobSpec, command: Sequence[str]) -> tuple[str, ...]:
    """The engine's command that runs `command` in a container.

    Network and shared memory are the node's: ranks connect to other nodes, and data loaders share memory with
    their workers. The image's entry point is replaced by the job's command.
    """
    limits = [f"--memory={spec.memory:.0f}"] if spec.memory is not None else []
    limits += [f"--cpus={spec.cpus:g}"] if spec.cpus is not None else []
    return (
        *(container.engine, "run", "--init", "--network=host", "--ipc=host"),
        *("--cap-drop=ALL", "--security-opt=no-new-privileges"),
        "--entrypoint=",
        f"--name={container.name}",
        f"--user={container.user}",
        *([f"--workdir={spec.working_directory}"] if spec.working_directory else []),
        *limits,
        *_devices(container),
        *(f"--mount=type=bind,source={one},target={one}" for one in _mounted(container)),
        f"--env-file={container.environment}",
        spec.image,
        *command,
    )


def _mounted(container: Container) -> Iterable[str]:
    """Each folder once; not the root, over which an engine mounts nothing."""
    return [one for one in dict.fromkeys(map(plain_name, container.folders)) if one != "/"]


def remove(engine: str, names: Iterable[str]) -> None:
    """Kill and remove the containers of these names; missing ones are ignored. Blocks."""
    subprocess.run(  # noqa: S603 - the engine's program, found on our path
        [engine, "rm", "--force", *names],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=REMOVAL_LIMIT_S,
    )


def out_of_memory(engine: str, names: Iterable[str]) -> int:
    """The number of these containers in which the kernel killed a process for want of memory. Blocks.

    Raises OSError, and TimeoutExpired if the engine does not answer.
    """
    answer = subprocess.run(  # noqa: S603 - the engine's program, found on our path
        [engine, "inspect", f"--format={OUT_OF_MEMORY}", *names],
        check=False,  # one that never came to be makes it fail; it still answers about the others
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=ANSWER_LIMIT_S,
        text=True,
    )
    return answer.stdout.split().count("true")


def _devices(container: Container) -> list[str]:
    if not container.gpus:
        return []
    if container.engine.endswith("podman"):
        return [f"--device=nvidia.com/gpu={gpu}" for gpu in container.gpus]
    return [f'--gpus="device={",".join(container.gpus)}"']
