"""How a policy is written, wherever it is named: `NAME`, or `NAME+OPTION=VALUE+OPTION=VALUE`. Pure.

NAME is that of an installed policy, `module:attribute`, or `file.py:attribute`. The policy says which options
there are, and what values they may have.
"""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

LENGTH_MAX = 400
ANY = "*"

_NAME = re.compile(r"[\w.-]+(:[\w.]+)?|[\w ./~-]+\.py:[\w.]+", re.ASCII)
_NEXT_OPTION = re.compile(r"\+(?=[^+=]*=)")
"""a plus that begins an option: one within a number, as in 1e+5, has no `=` before the next plus"""
_OPTION = re.compile(r"[a-z]\w*", re.ASCII)


class WrittenPolicy(NamedTuple):
    name: str
    options: dict[str, str]
    """values by name, as they were written"""


def parted(text: str) -> WrittenPolicy:
    """The name and options of a written policy. Raises ValueError with what is wrong."""
    if len(text) > LENGTH_MAX:
        raise ValueError(f"a policy is written in {LENGTH_MAX} characters at most")
    if not (text.isascii() and text.isprintable()):
        raise ValueError(f"{text!r}: letters that are not plain ASCII")
    name, *rest = _NEXT_OPTION.split(text)
    if not _NAME.fullmatch(name):
        raise ValueError(f"{text or 'an empty name'}: a policy is written NAME+OPTION=VALUE+OPTION=VALUE")
    options: dict[str, str] = {}
    for part in rest:
        option, _, value = part.partition("=")
        if not _OPTION.fullmatch(option):
            raise ValueError(f"{text}: {option!r} is not a name of an option")
        if option in options:
            raise ValueError(f"{text}: option {option} is there twice")
        options[option] = value
    return WrittenPolicy(name, options)


def written(name: str, options: Mapping[str, object]) -> str:
    """The inverse of `parted`."""
    return "+".join([name, *(f"{option}={_plain(value)}" for option, value in options.items())])


class AcceptedPolicies(msgspec.Struct, frozen=True):
    """The policy names that a stack accepts, decided once, at its start."""

    installed: Collection[str]
    configured: str = ""
    """the policy of the settings, as they write it"""
    allowed: Collection[str] = ()
    """further `module:attribute` and `file.py:attribute` names; `*`: any"""

    def names(self) -> tuple[str, ...]:
        """The names in alphabetical order; last `*`, if any `module:attribute` may be chosen."""
        own = parted(self.configured).name if self.configured else None
        named = {*self.installed, *self.allowed, *([own] if own else [])}
        return (*sorted(named - {ANY}), *([ANY] if ANY in named else []))

    def refusal(self, name: str) -> str | None:
        """Why a name is refused, with the choices; None for a name that is accepted."""
        names = self.names()
        if name in names or (ANY in names and ":" in name):
            return None
        others = "; policies_allowed lists what an operator allows besides" if ":" in name else ""
        choices = ", ".join("any module:attribute" if one == ANY else one for one in names)
        return f"no such policy {name}; there are {choices}{others}"


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
