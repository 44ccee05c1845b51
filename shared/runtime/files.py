"""Reads YAML and JSON files of users into structs. Every fault is reported with its file, line and field."""

import re
from bisect import bisect_left
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import msgspec
import yaml

from shared.runtime.error_wording import STEP, worded

T = TypeVar("T")

BYTES_AT_MOST = 16 * 1024 * 1024
NODES_AT_MOST = 2_000_000
"""values in one file, aliases expanded; also keys and values together, as they are written"""
DEPTH_AT_MOST = 100
EMPTY = "is empty"

_PLACE = re.compile(r" - at `(?:key` in `)?(?P<path>[^`]*)`$")
_UNNAMED = "[...]"
"""what msgspec writes for an entry of a mapping"""
_PLAIN = re.compile(r"[\w-]{1,100}")
"""a key that can be part of a path"""
_MEMBER = re.compile(r"(?P<kind>unknown|missing required) field `(?P<name>[^`]*)`")
_COLONS = re.compile(r"^[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?$")
"""a number of base 60 in YAML 1.1"""
_EXPONENT = re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$")


class InvalidFile(ValueError):
    """A file that is not what it should be. `line` counts from 1; `field` is a path such as `$.gpus[1]`."""

    def __init__(self, path: str, line: int | None, field: str | None, reason: str) -> None:
        place = path if line is None else f"{path}:{line}"
        super().__init__(": ".join(part for part in (place, field, reason) if part))
        self.path = path
        self.line = line
        self.field = field
        self.reason = reason


class _Loader(yaml.CSafeLoader):
    """YAML as people write it, not as 1.1 has it: `1e9` is a number; a date is text, and so is `12:30`."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:  # noqa: FBT001, FBT002 - as in yaml
        """Give errors of tags such as `!!int x` their line, which is known only here."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError) as error:
            tag = node.tag.rpartition(":")[2]
            reason = f"{node.value!r} is no {tag}" if isinstance(node.value, str) else f"no {tag}: {error}"
            raise yaml.MarkedYAMLError(problem=reason, problem_mark=node.start_mark) from None


_Loader.yaml_implicit_resolvers = {
    first: [
        ("tag:yaml.org,2002:str", _COLONS),  # before the numbers
        *((tag, form) for tag, form in forms if tag != "tag:yaml.org,2002:timestamp"),
    ]
    for first, forms in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


def read_file(path: str | Path, kind: type[T]) -> T:
    """The struct that a YAML or JSON file describes. Raises InvalidFile."""
    return parse(text_of(path), str(path), kind)


def fault(path: str | Path, field: str, reason: str, text: str | None = None) -> InvalidFile:
    """A fault that is found only after reading, with the line of its field, if the file has that field.

    `text`: what was read, if the file cannot be read again.
    """
    try:
        root, _ = _load(_readable(text_of(path) if text is None else text, str(path)), str(path))
    except InvalidFile:
        return InvalidFile(str(path), None, field, reason)
    _, last = _follow(root, field)
    return InvalidFile(str(path), _line(last), field, reason)


def text_of(path: str | Path) -> str:
    try:
        with Path(path).open("rb") as file:
            return text_in(file, str(path))
    except OSError as error:
        raise InvalidFile(str(path), None, None, error.strerror or str(error)) from None


def text_in(file: BinaryIO, path: str) -> str:
    """`path` names it in errors. Raises InvalidFile, and OSError where it cannot be read."""
    data = file.read(BYTES_AT_MOST + 1)
    if len(data) > BYTES_AT_MOST:
        raise InvalidFile(path, None, None, f"is larger than {BYTES_AT_MOST} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidFile(path, line, None, "is not UTF-8 text") from None


def parse(text: str, path: str, kind: type[T]) -> T:
    """The struct that a text in YAML or JSON describes; `path` names it in errors. Raises InvalidFile."""
    root, value = _load(_readable(text, path), path)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _located(error, path, root, _Converted(value, kind)) from None


def _readable(text: str, path: str) -> str:
    """The text; in a JSON file with spaces for tabs, which the YAML parser would refuse."""
    return text.replace("\t", " ") if path.endswith(".json") else text


def _load(text: str, path: str) -> tuple[yaml.Node, object]:
    loader = _Loader(text)
    try:
        _check_size(text, path)
        root = loader.get_single_node()
        if root is None:
            raise InvalidFile(path, None, None, EMPTY)
        _check(root, path)
        return root, loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = error.problem or error.context or "malformed"
        raise InvalidFile(path, mark.line + 1 if mark else None, None, reason) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, InvalidFile):
            raise
        raise InvalidFile(path, None, None, str(error).split("\n", maxsplit=1)[0]) from None
    finally:
        loader.dispose()


def _check_size(text: str, path: str) -> None:
    """Refuse what nests too deep, or is too much, before composing it.

    The C composer recurses, and would end the process. Composing the largest file takes half a minute and
    1.5 GB.
    """
    depth = nodes = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        nodes += isinstance(event, yaml.NodeEvent)
        if depth > DEPTH_AT_MOST or nodes > NODES_AT_MOST:
            mark, reason = event.start_mark, "too deep" if depth > DEPTH_AT_MOST else "too large"
            raise InvalidFile(path, mark.line + 1 if mark else None, None, reason)


def _check(root: yaml.Node, path: str) -> None:
    """Refuse keys given twice, of which only the last would count, and aliases that expand without limit."""
    todo = [(root, 0)]
    seen = 0
    while todo:
        node, depth = todo.pop()
        seen += 1
        if seen > NODES_AT_MOST or depth > DEPTH_AT_MOST:
            raise InvalidFile(path, _line(node), None, "too large or too deep")
        if isinstance(node, yaml.MappingNode):
            _check_keys(node, path)
        todo += [(child, depth + 1) for child in _children(node)]


def _check_keys(node: yaml.MappingNode, path: str) -> None:
    keys: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise InvalidFile(path, _line(key), None, "a key must be a plain value")
        if key.value in keys:
            raise InvalidFile(path, _line(key), None, f"the key {key.value} is given twice")
        keys.add(key.value)


def _children(node: yaml.Node) -> list[yaml.Node]:
    match node:
        case yaml.MappingNode():
            return [value for _, value in node.value]
        case yaml.SequenceNode():
            return list(node.value)
        case _:
            return []


class _Converted(NamedTuple):
    """What cannot be converted, and into what."""

    value: object
    kind: type

    def fails_as(self, text: str) -> bool:
        try:
            msgspec.convert(self.value, self.kind)
        except msgspec.ValidationError as error:
            return str(error) == text
        return False


def _located(error: msgspec.ValidationError, path: str, root: yaml.Node, what: _Converted) -> InvalidFile:
    """The error, with its field and the line of that field."""
    text = str(error)
    place = _PLACE.search(text)
    field = _named(place["path"], text, what) if place else "$"
    reason = text[: place.start()] if place else text
    member, reason = _MEMBER.search(reason), worded(reason, what.kind, field, _at(what.value, field))
    found, last = _follow(root, field)
    if member is not None:
        field = f"{field}.{member['name']}"
        found = _key(found, member["name"])
    return InvalidFile(path, _line(found or last), field, reason)


def _named(field: str, text: str, what: _Converted) -> str:
    """The path with keys in place of `_UNNAMED`.

    `text`: the error, which is about the first entry that has it. So the entries up to that one have it too,
    and those before it do not. The value is cut down to that entry.
    """
    before, unnamed, after = field.partition(_UNNAMED)
    mapping = _at(what.value, before) if unnamed else None
    if not isinstance(mapping, dict):
        return field
    entries = list(mapping.items())

    def has(count: int) -> bool:
        mapping.clear()
        mapping.update(entries[:count])
        return what.fails_as(text)

    key, value = entries[bisect_left(range(len(entries)), x=True, key=has) - 1]
    if not _PLAIN.fullmatch(str(key)):
        return field
    mapping.clear()
    mapping[key] = value
    return _named(f"{before}.{key}{after}", text, what)


def _at(value: object, path: str) -> object:
    for step in STEP.findall(path.removeprefix("$")):
        if isinstance(value, dict):
            value = {str(key): each for key, each in value.items()}.get(step)
        elif isinstance(value, list) and step.startswith("["):
            value = value[int(step[1:-1])]
    return value


def _follow(root: yaml.Node, path: str) -> tuple[yaml.Node | None, yaml.Node]:
    """The node at the path, if there is one, and the last one on the path that there is."""
    node = root
    for step in STEP.findall(path.removeprefix("$")):
        onward = _step(node, step)
        if onward is None:
            return None, node
        node = onward
    return node, node


def _step(node: yaml.Node, step: str) -> yaml.Node | None:
    match node:
        case yaml.SequenceNode() if step.startswith("[") and step != _UNNAMED:
            child: yaml.Node = node.value[int(step[1:-1])]
            return child
        case yaml.MappingNode():
            return next((value for key, value in node.value if key.value == step), None)
        case _:
            return None


def _key(node: yaml.Node | None, name: str) -> yaml.Node | None:
    keys = [key for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
    return next((key for key in keys if key.value == name), None)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
