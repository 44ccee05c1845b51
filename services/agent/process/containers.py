"""A rank in a container: a prefix to its command, for docker or podman.

The engine puts the processes into groups of its own, so limits are the engine's, and so is the kill.
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
MARKS = ':,"'
"""stand between the parts of an engine's options"""


class Container(msgspec.Struct, frozen=True, kw_only=True):
    engine: str
    """program of the engine"""
    name: str
    user: str
    """uid:gid"""
    environment: Path
    """file with the rank's environment; the engine's program runs in the agent's own, so that a job cannot
    influence it"""
    folders: Sequence[str]
    """folders that it sees, under the names that they have outside"""
    gpus: Sequence[str]


def engine() -> str | None:
    """The first that the node has."""
    return next(filter(None, map(shutil.which, ENGINES)), None)


def check_folders(folders: Iterable[str]) -> None:
    """Raises ValueError for one whose name says more to an engine than where it is."""
    for folder in folders:
        if set(folder) & set(MARKS):
            raise ValueError(f"{folder}: a container is given no folder with one of {MARKS} in its name")


def write_environment(path: Path, variables: Mapping[str, str]) -> None:
    """A line for each. Raises OSError; ValueError for one that has more lines."""
    lines = [f"{name}={value}" for name, value in variables.items()]
    if broken := next(
        (name for name, line in zip(variables, lines, strict=True) if set("\r\n") & set(line)), ""
    ):
        raise ValueError(f"{broken}: a container is given no variable with more than one line")
    path.touch(0o600)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def wrapped(container: Container, spec: JobSpec, command: Sequence[str]) -> tuple[str, ...]:
    """Network and shared memory are the node's: ranks meet other nodes, and loaders their workers.

    The image's own entry point is left out: what runs is the job's command.
    """
    limits = [f"--memory={spec.memory:.0f}"] if spec.memory is not None else []
    limits += [f"--cpus={spec.cpus:g}"] if spec.cpus is not None else []
    return (
        *(container.engine, "run", "--rm", "--init", "--network=host", "--ipc=host"),
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
    """Each folder once, but for the node's root: an engine mounts nothing over an image's own."""
    return [one for one in dict.fromkeys(map(plain_name, container.folders)) if one != "/"]


def remove(engine: str, names: Iterable[str]) -> None:
    """Kill and remove those that are there. Blocks."""
    subprocess.run(  # noqa: S603 - the engine's program, found on our path
        [engine, "rm", "--force", *names],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=REMOVAL_LIMIT_S,
    )


def _devices(container: Container) -> list[str]:
    if not container.gpus:
        return []
    if container.engine.endswith("podman"):
        return [f"--device=nvidia.com/gpu={gpu}" for gpu in container.gpus]
    return [f'--gpus="device={",".join(container.gpus)}"']
