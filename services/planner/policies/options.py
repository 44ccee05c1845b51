"""Options of policies: reads them from text, and describes them for `hopyard policy show`."""

from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from shared.runtime.error_wording import hint
from shared.runtime.settings import converted, docs_of

Value = str | int | float | bool | None
WORDS = {bool: "true, false", int: "a whole number", float: "a number", str: "text"}


class DescribedOption(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `hopyard policy show NAME`."""

    name: str
    default: Value
    choices: str
    """the values it may have"""
    doc: str
    """what it means, with its unit"""


def options_of(kind: type[msgspec.Struct], given: Mapping[str, str], policy: str) -> msgspec.Struct:
    """A policy's options, with the default of each that is not given.

    Raises ValueError, which names the choices.
    """
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in given:
        if name not in fields:
            names = list(fields)
            has = ", ".join(names) or "none"
            raise ValueError(f"policy {policy} has no option {name}; it has {has}{hint(name, names)}")
    return kind(**{name: _value(fields[name], text, policy) for name, text in given.items()})


def _value(field: msgspec.structs.FieldInfo, text: str, policy: str) -> Value:
    try:
        return converted(text, field.type, f"policy {policy}, option {field.name}")
    except ValueError:
        near = hint(text, [str(one) for one in get_args(field.type)])
        rule = f"it must be {_choices(field.type)}, but is {text!r}{near}"
        raise ValueError(f"policy {policy}, option {field.name}: {rule}") from None


def described(kind: type[msgspec.Struct]) -> list[DescribedOption]:
    docs = docs_of(kind)
    return [
        DescribedOption(
            name=field.name, default=field.default, choices=_choices(field.type), doc=docs.get(field.name, "")
        )
        for field in msgspec.structs.fields(kind)
    ]


def _choices(kind: Any) -> str:  # noqa: ANN401 - a field's type
    if get_origin(kind) in (Union, UnionType):
        [kind] = [one for one in get_args(kind) if one is not type(None)]
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    plain, *metas = get_args(kind) or (kind,)
    described = [meta.description for meta in metas if meta.description]
    words = described[0] if described else WORDS.get(plain, str(plain))
    bounds = [
        f"{sign} {bound:g}"
        for meta in metas
        for sign, bound in (("≥", meta.ge), (">", meta.gt), ("≤", meta.le), ("<", meta.lt))
        if bound is not None
    ]
    return " ".join([words, ", ".join(bounds)]).strip()
