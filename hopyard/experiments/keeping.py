"""Outcomes on disk: one compressed file each, under a name that changes with whatever could change them."""

import zlib
from functools import cache
from hashlib import blake2b
from importlib import resources
from importlib.metadata import entry_points
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path

import msgspec

from hopyard.experiments.trials import Kept, Simulation, Trial
from schemas.scenarios import TraceWorkload
from services.planner.registry import GROUP

PACKAGES = ("schemas", "shared", "services", "loadgen")
MODULES = ("trials.py", "outcomes.py", "solving.py")
"""of this package: those that make outcomes; the others only show them"""
SUFFIX = ".run"


def name_of(trial: Trial) -> str:
    """Readable, and a digest of the trial, of the trace it reads and of all code that takes part."""
    digest = blake2b(msgspec.json.encode(trial, order="deterministic"), digest_size=8)
    digest.update(_code())
    if isinstance(trial.scenario.workload, TraceWorkload):
        digest.update(Path(trial.scenario.workload.path).read_bytes())
    if not isinstance(trial, Simulation):
        return f"{trial.scenario.name}.solving.{trial.seed}.{digest.hexdigest()}"
    digest.update(_policy(trial.policy))
    plain = "".join(letter if letter.isalnum() else "-" for letter in trial.policy)
    return f"{trial.scenario.name}.{plain}.{trial.seed}.{digest.hexdigest()}"


def keep(path: Path, kept: Kept) -> None:
    """All or nothing: an interrupted run leaves no half outcome."""
    draft = path.with_suffix(".draft")
    draft.write_bytes(zlib.compress(msgspec.msgpack.encode(kept)))
    draft.replace(path)


def kept_at(path: Path) -> Kept | None:
    """None where there is none, or one that cannot be read."""
    try:
        return msgspec.msgpack.decode(zlib.decompress(path.read_bytes()), type=Kept)
    except (OSError, zlib.error, msgspec.DecodeError):
        return None


@cache
def _code() -> bytes:
    digest = blake2b(digest_size=8)
    for package in PACKAGES:
        for path, file in sorted(_sources(resources.files(package), package)):
            digest.update(path.encode() + b"\0" + file.read_bytes())
    for name in MODULES:
        digest.update(resources.files(__package__).joinpath(name).read_bytes())
    return digest.digest()


def _sources(folder: Traversable, path: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        here = f"{path}/{entry.name}"
        if entry.is_dir() and not entry.name.startswith("__"):
            found += _sources(entry, here)
        elif entry.name.endswith((".py", ".yaml")):
            found.append((here, entry))
    return found


@cache
def _policy(name: str) -> bytes:
    """The module of a policy, which may be anybody's."""
    modules = [point.module for point in entry_points(group=GROUP, name=name)] or [name.partition(":")[0]]
    spec = find_spec(modules[0])
    return b"" if spec is None or spec.origin is None else Path(spec.origin).read_bytes()
