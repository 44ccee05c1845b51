"""The estimator learns from what nodes report, and from nothing else."""

import subprocess
import sys
import typing
from collections.abc import Iterator

import msgspec

from schemas.events import FACTS
from schemas.questions import REPLIES
from schemas.samples import Reading

WITHOUT_THE_TRUTH = """
import importlib, pkgutil, sys
sys.modules["loadgen"] = None
import services
for found in pkgutil.walk_packages(services.__path__, "services."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""


def test_every_service_is_whole_where_the_emulated_world_cannot_be_imported() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_THE_TRUTH], check=True, timeout=60)


def parts(kind: object) -> Iterator[type]:
    """A message's type and those of all that is in it."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in typing.get_type_hints(kind).values():
            yield from parts(field)
    for argument in typing.get_args(kind):
        yield from parts(argument)


def test_no_message_is_made_of_the_emulated_world() -> None:
    travelling = {*FACTS.values(), *typing.get_args(Reading), *REPLIES, *REPLIES.values()}
    modules = {part.__module__ for kind in travelling for part in parts(kind)}
    assert modules
    assert {module.split(".")[0] for module in modules} == {"schemas"}
