"""Builds policies by name (an entry point of `hopyard.policies`, or `module:attribute`). Runs their code."""

import sys
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from schemas.plans import PlanKind
from services.planner.policies.contract.decision import Policy, PolicyFactory, Trigger
from services.planner.policies.options import options_of
from shared.domain.policy_names import AcceptedPolicies, parted
from shared.runtime.plugins import POLICIES, UnknownPlugin

STEPS = ("wants", "decide")


class UnfitPolicy(LookupError):
    """No policy of that name, or none that can be asked for a plan; the text says why."""


class Registry:
    """Policies by name and options, each built once. A policy may raise any exception."""

    def __init__(self, accepted: AcceptedPolicies | None = None) -> None:
        """`accepted`: the names that may be built; None: all that can be found."""
        self._accepted = accepted
        self._built: dict[str, Policy] = {}

    def find(self, name: str) -> Policy:
        """The policy of this name and options. Raises UnfitPolicy."""
        if name not in self._built:
            self._built[name] = _built(name, self._accepted)
        return self._built[name]

    def calls(self, name: str) -> dict[Trigger, PlanKind]:
        """Which kind of plan each trigger calls for (`Policy.calls`), in plain values. Raises UnfitPolicy."""
        return _calls(name, self.find(name))


def names() -> tuple[str, ...]:
    """The policies that are installed, in alphabetical order."""
    return POLICIES.names()


class NoOptions(msgspec.Struct, frozen=True):
    """The options of a policy without any."""


def options_kind(name: str) -> type[msgspec.Struct]:
    """The type of a policy's options; runs its module. Raises UnfitPolicy."""
    return _kind(name, _factory(name))


def about(name: str) -> str:
    """The first line of a policy's docstring, else of its module's. Runs its module.

    Empty where there is no docstring, and for a policy that cannot be loaded.
    """
    try:
        policy = _factory(name)
    except UnfitPolicy:
        return ""
    module = sys.modules.get(getattr(policy, "__module__", ""))
    doc = getattr(policy, "__doc__", None) or getattr(module, "__doc__", None) or ""
    return next(iter(doc.strip().splitlines()), "")


def _built(text: str, accepted: AcceptedPolicies | None) -> Policy:
    try:
        name, given = parted(text)
        refusal = accepted.refusal(name) if accepted is not None else None
        if refusal is not None:
            raise UnfitPolicy(refusal)
        factory = _factory(name)
        options = options_of(_kind(name, factory), given, name)
    except ValueError as error:
        raise UnfitPolicy(str(error)) from None
    return _constructed(name, factory, options)


def _factory(name: str) -> PolicyFactory:
    try:
        return cast("PolicyFactory", POLICIES.load(name))
    except UnknownPlugin as error:
        raise UnfitPolicy(str(error)) from error


def _kind(name: str, factory: PolicyFactory) -> type[msgspec.Struct]:
    kind = getattr(factory, "Options", NoOptions)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    raise UnfitPolicy(f"{name} is not a policy: its `Options` is not a msgspec struct")


def _constructed(name: str, factory: PolicyFactory, options: msgspec.Struct) -> Policy:
    try:
        policy = factory() if isinstance(options, NoOptions) else factory(options)
    except MemoryError:
        raise
    except ValueError as error:  # of an option's value
        raise UnfitPolicy(f"policy {name}: {error}") from None
    except Exception as error:  # noqa: BLE001 - a policy is third-party code
        raise UnfitPolicy(f"policy {name} cannot be built: {type(error).__name__}: {error}") from None
    _calls(name, policy)
    missing = [step for step in STEPS if not callable(getattr(policy, step, None))]
    if missing:
        raise UnfitPolicy(f"{name} is not a policy: it has no {' and no '.join(missing)}")
    return policy


def _calls(name: str, policy: Any) -> dict[Trigger, PlanKind]:  # noqa: ANN401 - whatever was built
    calls = getattr(policy, "calls", None)
    if not isinstance(calls, Mapping):
        raise UnfitPolicy(f"{name} is not a policy: its `calls` is {calls!r:.80}, not a mapping")
    try:
        return msgspec.convert(dict(calls), dict[Trigger, PlanKind])
    except msgspec.ValidationError as error:
        raise UnfitPolicy(
            f"{name} is not a policy: its `calls` must map a trigger to a kind of plan: {error}"
        ) from None
