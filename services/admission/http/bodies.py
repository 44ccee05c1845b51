"""Decodes the body or query of a request into a struct, or refuses it and names the field."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar, get_origin

import msgspec

from services.admission import problems
from services.admission.problems import Refusal
from shared.runtime.error_wording import worded
from shared.runtime.files import InvalidFile, parse

YAML_BYTES_MAX = 65_536
"""largest YAML body; reading it takes 0.2 s, in which no other request is answered"""

JSON_TYPES = ("application/json",)
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")

_HALF_PAIR = re.compile("[\ud800-\udfff]")
_PLACE = re.compile(r" - at `(?:key` in `)?(?P<place>[^`]*)`$")
_MEMBER = re.compile(r"Object (?:contains unknown|missing required) field `(?P<member>[^`]*)`")

T = TypeVar("T")
Q = TypeVar("Q", bound=msgspec.Struct)


def decode_body(kind: type[T], content_type: str, body: bytes) -> T:
    """The struct in a JSON or YAML body. Raises Refusal."""
    if content_type in JSON_TYPES:
        return _decode(kind, lambda: _from_json(kind, body))
    if content_type in YAML_TYPES:
        if len(body) > YAML_BYTES_MAX:
            raise Refusal(problems.too_large(YAML_BYTES_MAX))
        return _decode(kind, lambda: _from_yaml(kind, body))
    raise Refusal(problems.unsupported(f"{JSON_TYPES[0]} or {YAML_TYPES[0]}"))


def decode_query(kind: type[Q], query: Mapping[str, str]) -> Q:
    """The struct in a query string: numbers and booleans are read from text, a list from text with commas.

    Raises Refusal, also for a parameter that is given twice, of which only one would count.
    """
    for name, times in Counter(name for name, _ in query.items()).items():
        if times > 1:
            raise Refusal(problems.invalid(f"$.{name}", "is given more than once; a list has commas"))
    lists = {field.name for field in msgspec.structs.fields(kind) if get_origin(field.type) is tuple}
    given = {name: value.split(",") if name in lists else value for name, value in query.items()}
    return _decode(kind, lambda: msgspec.convert(given, kind, strict=False))


def _from_json(kind: type[T], body: bytes) -> T:
    try:
        decoded = msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        _name_fault(kind, body)
        raise
    json.loads(body, object_pairs_hook=_without_repetition)
    return decoded


def _from_yaml(kind: type[T], body: bytes) -> T:
    try:
        return parse(body.decode(), "body", kind)
    except InvalidFile as error:
        reason = f"line {error.line}: {error.reason}" if error.line else error.reason
        problem = problems.malformed(reason) if error.field is None else problems.invalid(error.field, reason)
        raise Refusal(problem) from None


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Raises ValueError for a key given twice, of which msgspec takes the last without a word."""
    for name, times in Counter(name for name, _ in pairs).items():
        if times > 1:
            raise ValueError(f"the key {name} is given twice")
    return dict(pairs)


def _name_fault(kind: type, body: bytes) -> None:
    """Raise what says best why the bytes are no JSON, if the standard library, which accepts more, finds it.

    Many programs write NaN and Infinity, so their field is named, and some write half of a surrogate pair.
    """
    content = json.loads(body)
    half = _HALF_PAIR.search(json.dumps(content, ensure_ascii=False))
    if half is not None:
        raise ValueError(f"\\u{ord(half[0]):x} is half of a surrogate pair, which is no text")
    msgspec.convert(content, kind)


def _decode(kind: type[T], read: Callable[[], T]) -> T:
    try:
        return read()
    except msgspec.ValidationError as error:
        field, reason = placed(str(error), kind)
        raise Refusal(problems.invalid(field, reason)) from None
    except (ValueError, RecursionError) as error:  # DecodeError and UnicodeDecodeError among them
        raise Refusal(problems.malformed(str(error))) from None


def placed(text: str, kind: type) -> tuple[str, str]:
    """The field and the reason in a message such as ``Expected `int` >= 1 - at `$.gpus[1]` ``."""
    found = _PLACE.search(text)
    place, reason = (found["place"], text[: found.start()]) if found else ("$", text)
    member = _MEMBER.match(reason)
    return (f"{place}.{member['member']}" if member else place), worded(reason, kind, place)
