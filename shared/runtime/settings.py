"""Settings from a file and the environment. The environment wins; a mistake is an error that names it."""

import ast
import difflib
import inspect
import math
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from schemas.settings import FORMER_NAMES, Settings
from schemas.views import SettingsView, SettingView
from shared.runtime.error_wording import worded
from shared.runtime.files import EMPTY, InvalidFile, parse, text_of

PREFIX = "HOPYARD_"
FILE_VARIABLE = "HOPYARD_SETTINGS"
"""environment variable that holds the path of the settings file"""
SOURCES_VARIABLE = "HOPYARD_SOURCES"
"""environment variable with the sources of settings by name, as JSON, from the parent process"""
NOT_SETTINGS = {FILE_VARIABLE, SOURCES_VARIABLE, PREFIX + "SERVICE", PREFIX + "SCENARIO", PREFIX + "PORT"}
"""variables of the image and the compose file that are not settings"""
ENVIRONMENT, DEFAULT = "environment", "default"
_CREDENTIALS = re.compile(r"//[^@/]+@")
"""user and password in a URL"""
_SECRETS = ("token", "password")

Value = str | int | float | bool
V = TypeVar("V")


class UnknownSetting(ValueError):
    """A name that no setting has."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


class Misconfigured(SystemExit):
    """Ends a process whose settings, or what they name, are wrong: a restart would not help. It says why."""


def load_settings(environ: Mapping[str, str], path: Path | str | None = None) -> Settings:
    """The settings in force.

    `path` None: the file that `HOPYARD_SETTINGS` names, if it names one. Raises ValueError that names the
    file or variable and the setting.
    """
    return msgspec.convert(in_file(environ, path) | in_environment(environ), Settings)


def in_file(environ: Mapping[str, str], path: Path | str | None = None) -> dict[str, Value]:
    """Only the settings of the file. Raises as `load_settings` does."""
    path = path or environ.get(FILE_VARIABLE) or None
    return _checked(_from_file(Path(path)), f"{path}: ") if path else {}


def in_environment(environ: Mapping[str, str]) -> dict[str, Value]:
    """Only the settings of the environment. Raises as `load_settings` does."""
    return _checked(_from_environment(environ), PREFIX)


def sources_of(environ: Mapping[str, str], path: Path | str | None = None) -> dict[str, str]:
    """The source of each setting that is set. Raises as `load_settings` does."""
    file = path or environ.get(FILE_VARIABLE) or ""
    found = dict.fromkeys(in_file(environ, path), str(file)) | dict.fromkeys(
        in_environment(environ), ENVIRONMENT
    )
    handed_on = msgspec.json.decode(environ.get(SOURCES_VARIABLE, "{}"), type=dict[str, str])
    return found | {name: source for name, source in handed_on.items() if name in found}


def describe(settings: Settings, sources: Mapping[str, str]) -> SettingsView:
    """Every setting with its value, default, source and meaning."""
    docs = docs_of(Settings)
    return SettingsView(
        settings=tuple(
            SettingView(
                name=field.name,
                value=_shown(field.name, getattr(settings, field.name)),
                default=field.default,
                source=sources.get(field.name, DEFAULT),
                doc=docs.get(field.name, ""),
            )
            for field in msgspec.structs.fields(Settings)
        )
    )


def _from_file(path: Path) -> dict[str, object]:
    try:
        content = parse(text_of(path), str(path), object)
    except InvalidFile as error:
        if error.reason == EMPTY:
            return {}
        raise
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ValueError(f"{path}: settings are a mapping of names to values")  # noqa: TRY004 - what a user wrote
    return {str(name): value for name, value in content.items()}


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name not in NOT_SETTINGS
    }


def by_present_names(values: Mapping[str, V]) -> dict[str, V]:
    """Settings by their present names; if the former name is given too, the present one wins."""
    former_first = sorted(values, key=lambda name: name not in FORMER_NAMES)
    return {FORMER_NAMES.get(name, name): values[name] for name in former_first}


def _checked(values: Mapping[str, object], source: str) -> dict[str, Value]:
    """The values as the settings' types. Errors have the names that were written."""
    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    written = by_present_names({name: name for name in values})
    return {
        name: converted(values[own], fields[_known(name, fields, source)].type, _label(own, source))
        for name, own in written.items()
    }


def _known(name: str, names: Iterable[str], source: str) -> str:
    if name in (names := list(names)):
        return name
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {_label(close[0], source)}?" if close else ""
    raise UnknownSetting(f"{_label(name, source)}: there is no such setting{hint}", name)


def converted(value: object, kind: object, label: str) -> Value:
    """A value as a field's type. Raises ValueError that begins with `label`."""
    try:
        # Only text is read leniently: everything in the environment is text, a number in a file is not.
        converted: Value = msgspec.convert(value, kind, strict=not isinstance(value, str))
    except msgspec.ValidationError as error:
        raise ValueError(f"{label}: {worded(str(error), kind, '$')} (it is {value!r})") from None
    if isinstance(converted, float) and not math.isfinite(converted):
        raise ValueError(f"{label}: a finite number is needed (it is {value!r})")
    return converted


def _label(name: str, source: str) -> str:
    return source + (name.upper() if source == PREFIX else name)


def _shown(name: str, value: Value) -> Value:
    if isinstance(value, str) and name.endswith("_url"):
        return _CREDENTIALS.sub("//***@", value)
    return "***" if value and name.endswith(_SECRETS) else value


def docs_of(kind: type) -> dict[str, str]:
    """The docstrings below the fields of a struct, from its source, since Python drops them."""
    docs: dict[str, str] = {}
    for own in reversed(kind.__mro__):
        if own.__module__ not in {"msgspec", "builtins"}:
            docs |= _own_docs(own)
    return docs


def _own_docs(kind: type) -> dict[str, str]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError):  # it has no source file
        return {}
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = _text(below)
            if text:
                docs[field.target.id] = " ".join(text.split())
    return docs


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return ""
