"""Error messages in plain words about values that users wrote, from msgspec's message and the type."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import inspect

STEP = re.compile(r"\[\.\.\.\]|\[\d+\]|[^.\[\]]+")
"""one step of a path such as `$.gpus[1]`, whose `$` is removed first"""
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_NONE_OF = re.compile(r"Invalid (?:enum )?value (?P<value>'.*'|[^ ]+)")
_MATCHING = re.compile(r"Expected `str` matching regex")
_EXPECTED = re.compile(r"Expected `(?P<kinds>[^`]*)`(?P<bound>[^,]*)(?:, got `(?P<got>[^`]*)`)?")

WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}
UNQUOTED_TYPES = frozenset({"int", "float", "bool", "null"})
"""types that a YAML parser may give to text without quotes"""
QUOTED = "; in quotes it is text"
LISTED_AT_MOST = 40
QUOTE = "'"


def worded(reason: str, kind: object, path: str, at: object = None) -> str:
    """The message in plain words.

    `reason`: msgspec's message without the path; `path`: as `$.gpus[1]`; `kind`: the type of the whole value;
    `at`: the value at the path, whose tag says which of several structs it is.
    """
    types = _types_at(kind, path)
    if found := _UNKNOWN.match(reason):
        known = list(dict.fromkeys(_fields(types, at)))
        return f"there is no such field{hint(found['name'], known)}; there are {listed(known) or 'none'}"
    if found := _MISSING.match(reason):
        return "this field is missing"
    if found := _NONE_OF.match(reason):
        return _none_of(found["value"], types)
    if _MATCHING.match(reason):
        return f"it must be {' or '.join(_described(types)) or 'text of another form'}"
    if found := _EXPECTED.match(reason):
        kinds = [WORDS.get(each, each) for each in found["kinds"].split(" | ")]
        got = f", but is {WORDS.get(found['got'], found['got'])}" if found["got"] else ""
        quoted = QUOTED if kinds == [WORDS["str"]] and found["got"] in UNQUOTED_TYPES else ""
        return f"it must be {_either(kinds)}{found['bound']}{got}{quoted}"
    return reason


def _none_of(value: str, types: Sequence[inspect.Type]) -> str:
    known = list(dict.fromkeys(_values(types)))
    others = list(dict.fromkeys(_other_kinds(types)))
    said = f"it must be {_either([*others, *known])}, but is {value}" if others else ""
    return (said or f"{value} is none of {listed(known)}") + hint(value.strip(QUOTE), known)


def hint(name: str, known: Sequence[str]) -> str:
    """The known name that was probably meant, as a question; empty if none is similar."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED_AT_MOST
    return ", ".join(names[:LISTED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def _either(words: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


# ---- types


def _types_at(kind: object, path: str) -> list[inspect.Type]:
    """The types that a value at this path may have."""
    types = list(_members(inspect.type_info(kind)))
    for step in STEP.findall(path.removeprefix("$")):
        types = [inner for each in types for inner in _types_within(each, step)]
    return types


def _members(kind: Any) -> Iterator[inspect.Type]:  # noqa: ANN401 - one of msgspec's classes
    """The members of a union type, each with its metadata."""
    if isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _members(each)
    else:
        yield kind


def _without_metadata(kind: Any) -> inspect.Type:  # noqa: ANN401 - as above
    return _without_metadata(kind.type) if isinstance(kind, inspect.Metadata) else kind


def _types_within(kind: inspect.Type, step: str) -> Iterator[inspect.Type]:
    match _without_metadata(kind):
        case inspect.UnionType() as union:
            for each in _members(union):
                yield from _types_within(each, step)
        case inspect.StructType(fields=fields, tag_field=tag_field, tag=tag):
            if tag_field == step and tag is not None:
                yield inspect.LiteralType((tag,))
            for field in fields:
                if field.encode_name == step:
                    yield from _members(field.type)
        case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner):
            if step.startswith("["):
                yield from _members(inner)
        case inspect.DictType(value_type=inner):
            yield from _members(inner)
        case _:
            return


def _fields(types: Iterable[inspect.Type], at: object) -> Iterator[str]:
    """Names of the fields that a value may have; of structs with tags, that of the value `at` counts."""
    for kind in types:
        match _without_metadata(kind):
            case inspect.StructType(tag_field=str(name), tag=tag) if (
                isinstance(at, dict) and at.get(name) != tag
            ):
                pass
            case inspect.StructType(fields=fields):
                yield from (field.encode_name for field in fields)
            case inspect.UnionType() as union:
                yield from _fields(_members(union), at)
            case _:
                pass


def _values(types: Iterable[inspect.Type]) -> Iterator[str]:
    """The values that a `Literal`, an enum or the tag of a struct allows."""
    for kind in types:
        match _without_metadata(kind):
            case inspect.LiteralType(values=values):
                yield from map(str, values)
            case inspect.EnumType(cls=cls):
                yield from (str(each.value) for each in cls)
            case _:
                pass


def _other_kinds(types: Iterable[inspect.Type]) -> Iterator[str]:
    """Kinds of values that are allowed beside named ones, in words."""
    for kind in types:
        match _without_metadata(kind):
            case inspect.IntType():
                yield WORDS["int"]
            case inspect.FloatType():
                yield WORDS["float"]
            case inspect.BoolType():
                yield WORDS["bool"]
            case _:
                pass


def _described(types: Iterable[inspect.Type]) -> Iterator[str]:
    """The types' own descriptions (`Meta.description`)."""
    for kind in types:
        if isinstance(kind, inspect.Metadata):
            if text := (kind.extra_json_schema or {}).get("description"):
                yield str(text)
            yield from _described([kind.type])
