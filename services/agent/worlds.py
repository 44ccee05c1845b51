"""Finds a world by name: an entry point of `hopyard.worlds`, or `module:attribute`."""

import importlib
from importlib.metadata import entry_points
from typing import cast

from services.agent.world import World, WorldFactory

GROUP = "hopyard.worlds"


class UnknownWorld(LookupError):
    """No world of that name; the text lists the names there are."""


def find_world(name: str, seed: int) -> World:
    """Raises UnknownWorld."""
    try:
        for point in entry_points(group=GROUP, name=name):
            return cast("WorldFactory", point.load())(seed)
        module, _, attribute = name.partition(":")
        if attribute:
            return cast("WorldFactory", getattr(importlib.import_module(module), attribute))(seed)
    except (ImportError, AttributeError) as error:
        raise UnknownWorld(f"world {name}: {error}") from None
    known = ", ".join(sorted(point.name for point in entry_points(group=GROUP)))
    raise UnknownWorld(f"world {name} is unknown; there are {known}")
