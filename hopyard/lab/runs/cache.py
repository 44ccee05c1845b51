"""Outcomes on disk: one compressed file each, under a name that changes with whatever could change them."""

import zlib
from functools import cache
from hashlib import blake2b
from importlib import resources
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path

import msgspec

from hopyard.lab.runs.trials import Simulation, StoredOutcome, Trial
from schemas.scenarios import TraceWorkload
from shared.runtime.plugins import POLICIES, is_file

CODE = ("schemas", "shared", "services", "loadgen", __package__)
"""packages whose sources all affect an outcome; the rest of `hopyard` only shows outcomes"""
SOURCES = (".py", ".yaml")
SUFFIX = ".run"


def name_of(trial: Trial) -> str:
    """A readable name with a digest of the trial, its trace and all code that affects it."""
    digest = blake2b(msgspec.json.encode(trial, order="deterministic"), digest_size=8)
    digest.update(_code())
    if isinstance(trial.scenario.workload, TraceWorkload):
        digest.update(Path(trial.scenario.workload.path).read_bytes())
    if not isinstance(trial, Simulation):
        kind = type(trial).__name__.lower()
        return f"{trial.scenario.name}.{kind}.{trial.seed}.{digest.hexdigest()}"
    digest.update(policy_digest(trial.policy))
    plain = "".join(letter if letter.isalnum() else "-" for letter in trial.policy)
    return f"{trial.scenario.name}.{plain}.{trial.seed}.{digest.hexdigest()}"


def keep(path: Path, kept: StoredOutcome) -> None:
    """Store an outcome atomically: an interrupted run leaves none."""
    draft = path.with_suffix(".draft")
    draft.write_bytes(zlib.compress(msgspec.msgpack.encode(kept)))
    draft.replace(path)


def kept_at(path: Path) -> StoredOutcome | None:
    """The stored outcome; None if there is none, or it cannot be read."""
    try:
        return msgspec.msgpack.decode(zlib.decompress(path.read_bytes()), type=StoredOutcome)
    except (OSError, zlib.error, msgspec.DecodeError):
        return None


@cache
def _code() -> bytes:
    return b"".join(digest_of(resources.files(package)) for package in CODE)


def digest_of(folder: Traversable) -> bytes:
    """Digests of every source below a folder, by its path in it."""
    digest = blake2b(digest_size=8)
    for path, file in sorted(_sources(folder, "")):
        digest.update(path.encode() + b"\0" + file.read_bytes())
    return digest.digest()


def _sources(folder: Traversable, path: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        here = f"{path}/{entry.name}"
        if entry.is_dir() and not entry.name.startswith("__"):
            found += _sources(entry, here)
        elif entry.name.endswith(SOURCES):
            found.append((here, entry))
    return found


@cache
def policy_digest(name: str) -> bytes:
    """The code of a policy, which may be anybody's: its file, its whole package, or its module."""
    module = POLICIES.target(name.partition("+")[0]).partition(":")[0]
    if is_file(module):
        return Path(module).expanduser().read_bytes()
    top = module.partition(".")[0]
    spec = find_spec(top)
    if spec is None or top in CODE:
        return b""
    if spec.submodule_search_locations is not None:
        return b"".join(digest_of(Path(folder)) for folder in spec.submodule_search_locations)
    return b"" if spec.origin is None else Path(spec.origin).read_bytes()
