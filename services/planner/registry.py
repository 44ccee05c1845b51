"""Finds a policy by name: an entry point of `hopyard.policies`, or `module:attribute`."""

import importlib
from functools import cache
from importlib.metadata import entry_points
from typing import cast

from schemas.settings import Settings
from services.planner.policies.contract import Policy, PolicyFactory

GROUP = "hopyard.policies"


class UnknownPolicy(LookupError):
    """No policy of that name; the text lists the names there are."""


class Registry:
    """Policies built from one set of settings, each once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._built: dict[str, Policy] = {}

    def find(self, name: str) -> Policy:
        """Raises UnknownPolicy."""
        if name not in self._built:
            self._built[name] = _factory(name)(self._settings)
        return self._built[name]


def names() -> tuple[str, ...]:
    """The policies that are installed, in alphabetical order."""
    return tuple(sorted(point.name for point in entry_points(group=GROUP)))


@cache
def _factory(name: str) -> PolicyFactory:
    try:
        for point in entry_points(group=GROUP, name=name):
            return cast("PolicyFactory", point.load())
        module, _, attribute = name.partition(":")
        if attribute:
            return cast("PolicyFactory", getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise UnknownPolicy(f"policy {name}: {error}") from None
    raise UnknownPolicy(f"policy {name} is unknown; there are {', '.join(names())}")
