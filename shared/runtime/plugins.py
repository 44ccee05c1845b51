"""Finds plug-ins by name: an entry point of a group, `module:attribute`, or `file.py:attribute`.

The groups stand at the end of this file. Listing names imports nothing; `load` runs the plug-in's module.
"""

import importlib
import importlib.util
import sys
from functools import cache
from hashlib import blake2b
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from schemas.settings import Settings
from shared.domain.policy_names import AcceptedPolicies, parted
from shared.runtime.error_wording import hint


class UnknownPlugin(LookupError):
    """No plug-in of that name, or its module cannot be imported; the text says which."""


class Group(msgspec.Struct, frozen=True):
    """One kind of plug-in."""

    kind: str
    """the word for it in messages"""
    entry_points: str
    """the entry points' group"""

    def names(self) -> tuple[str, ...]:
        """Names of the installed plug-ins, in alphabetical order."""
        return tuple(sorted(_installed(self.entry_points)))

    def target(self, name: str) -> str:
        """The `module:attribute` or `file.py:attribute` that a name stands for. Raises UnknownPlugin."""
        installed = _installed(self.entry_points).get(name)
        if installed is not None:
            return installed
        module, colon, attribute = name.partition(":")
        if module and colon and attribute:
            return name
        raise UnknownPlugin(f"{self.kind} {name} is unknown; there are {self._listed()}")

    def _listed(self) -> str:
        return ", ".join(self.names()) or f"none installed in {self.entry_points} (does `uv sync` help?)"

    def load(self, name: str) -> Any:  # noqa: ANN401 - the caller knows what its group holds
        """Import the object that a name stands for. Raises UnknownPlugin."""
        module, _, attribute = self.target(name).partition(":")
        try:
            found: object = of_file(Path(module)) if is_file(module) else importlib.import_module(module)
        except FileNotFoundError as error:
            raise UnknownPlugin(f"{self.kind} {name}: there is no file {error.filename}") from error
        except Exception as error:  # an import runs third-party code, which may raise anything
            raise UnknownPlugin(f"{self.kind} {name}: {type(error).__name__}: {error}") from error
        for part in attribute.split("."):
            if not hasattr(found, part):
                there = [each for each in vars(found) if not each.startswith("_")]
                raise UnknownPlugin(f"{self.kind} {name}: {module} has no {part}{hint(part, there)}")
            found = getattr(found, part)
        return found


def is_file(module: str) -> bool:
    """Whether the part before the colon is a file's path and no module's name."""
    return module.endswith(".py")


def of_file(path: Path) -> ModuleType:
    """The module in a file, run once in a process.

    Its folder is not searched for further modules: it may have folders with the names of our packages.
    Raises OSError, and whatever the file raises.
    """
    path = path.expanduser().resolve()
    name = f"{path.stem}_{blake2b(bytes(path), digest_size=8).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a name that ends in .py has a loader"
    assert spec.loader is not None, "as above"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs, as an import does: annotations are looked up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@cache
def _installed(group: str) -> dict[str, str]:
    """`module:attribute` by name. Cached: every node of a simulated cluster asks for its world."""
    return {point.name: point.value for point in entry_points(group=group)}


POLICIES = Group("policy", "hopyard.policies")
WORLDS = Group("world", "hopyard.worlds")
RUNNERS = Group("runner", "hopyard.runners")
NODES = Group("provider of nodes", "hopyard.nodes")
PREDICTORS = Group("predictor", "hopyard.predictors")


def accepted_policies(settings: Settings) -> AcceptedPolicies:
    """Which policies a stack of these settings takes, as it is installed. Raises ValueError."""
    parted(settings.policy)
    return AcceptedPolicies(POLICIES.names(), settings.policy, settings.policies_allowed.split())
