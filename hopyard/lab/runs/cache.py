"""Outcomes on disk: one compressed file each, under a name that changes with whatever could change them."""

import zlib
from functools import cache
from hashlib import blake2b
from importlib import resources
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path

import msgspec

from hopyard.lab.runs.trials import Overrides, Simulation, StoredOutcome, Trial
from schemas.scenarios import ScenarioFile, TraceWorkload
from shared.runtime.disk import naming
from shared.runtime.plugins import POLICIES, PREDICTORS, WORLDS, Group, UnknownPlugin, is_file

CODE = ("schemas", "shared", "services", "loadgen", __package__)
"""packages whose sources all affect an outcome; the rest of `hopyard` only shows outcomes"""
SOURCES = (".py", ".yaml", ".csv")
SUFFIX = ".run"
POLICY_LETTERS = 120
"""of a policy, the last that a name shows: file systems take names of 255 bytes"""
READ = ("learnt_from", "catalogue")
"""settings that name files which a simulation reads"""


def name_of(trial: Trial) -> str:
    """A readable name with a digest of the trial, what it reads, and all code that affects it."""
    digest = blake2b(msgspec.json.encode(trial, order="deterministic"), digest_size=8)
    digest.update(_code())
    digest.update(read_by(trial.scenario, trial.overrides))
    if isinstance(trial.scenario.workload, TraceWorkload):
        digest.update(Path(trial.scenario.workload.path).read_bytes())
    if not isinstance(trial, Simulation):
        kind = type(trial).__name__.lower()
        return f"{trial.scenario.name}.{kind}.{trial.seed}.{digest.hexdigest()}"
    digest.update(policy_digest(trial.policy))
    plain = "".join(letter if letter.isalnum() else "-" for letter in trial.policy)[-POLICY_LETTERS:]
    return f"{trial.scenario.name}.{plain}.{trial.seed}.{digest.hexdigest()}"


def read_by(scenario: ScenarioFile, overrides: Overrides) -> bytes:
    """Digests of what the scenario and settings name beside the trace: files, and code from elsewhere.

    Empty where they name nothing of the kind.
    """
    settings = {**scenario.settings, **overrides}
    files = [_content(Path(str(path))) for name in READ if (path := settings.get(name))]
    world = [plugin_digest(WORLDS, str(settings["world"]))] if "world" in settings else []
    return b"".join([*files, *world, *(policy_digest(change.policy) for change in scenario.policies)])


def keep(path: Path, kept: StoredOutcome) -> None:
    """Store an outcome atomically: an interrupted run leaves none."""
    draft = path.with_suffix(".draft")
    with naming(draft):
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
    """Our own code, and that of every installed predictor, of which options of a policy choose one."""
    predictors = (plugin_digest(PREDICTORS, name) for name in PREDICTORS.names())
    return b"".join([*(digest_of(resources.files(package)) for package in CODE), *predictors])


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


def policy_digest(policy: str) -> bytes:
    """The code of a policy with options."""
    return plugin_digest(POLICIES, policy.partition("+")[0])


def plugin_digest(group: Group, name: str) -> bytes:
    """The code of a plug-in, which may be anybody's: its file, its whole package, or its module.

    Empty for one that is our own, and for one that cannot be found: then the run says so.
    """
    try:
        module = group.target(name).partition(":")[0]
    except UnknownPlugin:
        return b""
    return _content(Path(module).expanduser()) if is_file(module) else _package(module.partition(".")[0])


def _content(file: Path) -> bytes:
    """Empty for a file that cannot be read: then the run says so."""
    try:
        return blake2b(file.read_bytes(), digest_size=8).digest()
    except OSError:
        return b""


@cache
def _package(name: str) -> bytes:
    spec = None if name in CODE else find_spec(name)
    if spec is None:
        return b""
    if spec.submodule_search_locations is not None:
        return b"".join(digest_of(Path(folder)) for folder in spec.submodule_search_locations)
    return b"" if spec.origin is None else _content(Path(spec.origin))
