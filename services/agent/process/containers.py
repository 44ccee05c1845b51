"""A rank in a container: a prefix to its command, for docker or podman. Pure but for the search for one.

The engine puts the processes into groups of its own, so limits are the engine's, and so is the kill.
"""

import shutil
import subprocess
from collections.abc import Iterable, Sequence

import msgspec

from schemas.jobs import JobSpec

ENGINES = ("docker", "podman")
REMOVAL_LIMIT_S = 20.0


class Container(msgspec.Struct, frozen=True, kw_only=True):
    engine: str
    """its program"""
    name: str
    user: str
    """uid:gid"""
    variables: Sequence[str]
    """names of those that are handed on from the environment of the engine's program"""
    folders: Sequence[str]
    """that it sees, under the names that they have outside"""
    gpus: Sequence[str]


def engine() -> str | None:
    """The first that the node has."""
    return next(filter(None, map(shutil.which, ENGINES)), None)


def wrapped(container: Container, spec: JobSpec, command: Sequence[str]) -> tuple[str, ...]:
    """Network and shared memory are the node's: ranks meet other nodes, and loaders their workers.

    The image's own entry point is left out: what runs is the job's command.
    """
    limits = [f"--memory={spec.memory:.0f}"] if spec.memory is not None else []
    limits += [f"--cpus={spec.cpus:g}"] if spec.cpus is not None else []
    return (
        *(container.engine, "run", "--rm", "--init", "--network=host", "--ipc=host"),
        "--entrypoint=",
        f"--name={container.name}",
        f"--user={container.user}",
        *([f"--workdir={spec.working_directory}"] if spec.working_directory else []),
        *limits,
        *_devices(container),
        *(f"--volume={folder}:{folder}" for folder in dict.fromkeys(container.folders)),
        *(f"--env={name}" for name in container.variables),
        spec.image,
        *command,
    )


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
