"""Variants of a policy: the same code with other defaults of its options. Pure.

The options of a policy are the fields of a struct that its attribute `Options` names. Each is text, a number,
a truth value or a `Literal`, with a default, bounds as `msgspec.Meta`, and a docstring below it that says
what it means and in which unit. A policy without `Options` has no options.
"""

from typing import Any, TypeVar

import msgspec

P = TypeVar("P", bound=type)


def variant(policy: P, about: str, /, **defaults: object) -> P:
    """The same policy with other defaults, to be an entry point of its own; `about`: one line about it."""
    own: Any = policy
    fields = {field.name: field.type for field in msgspec.structs.fields(own.Options)}
    changed = [(name, fields[name], value) for name, value in defaults.items()]
    bases = (own.Options,)
    options = msgspec.defstruct(bases[0].__name__, changed, bases=bases, frozen=True, kw_only=True)
    own_to_it = {"Options": options, "__doc__": about, "__module__": policy.__module__}
    made: Any = type(policy.__name__, (policy,), own_to_it)
    return made  # type: ignore[no-any-return]
