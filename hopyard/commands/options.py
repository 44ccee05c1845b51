"""Options that several commands share, worded once."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

import msgspec
import typer

from hopyard.actions import completion
from hopyard.failures import Failure, Invalid
from schemas.scenarios import PolicyChange
from schemas.settings import SEED_MOST, Settings
from shared.runtime import outputs

SCENARIO = "scenario"
"""the parameter that is a name, or a file with a suffix"""
T = TypeVar("T")


def _url(text: str | None) -> str | None:
    """Raises Invalid for what is no address of a web server."""
    if not text:
        return text
    try:
        parts = urlsplit(text)
        meant = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        meant = False
    if not meant:
        raise Invalid(f"{text} is not a URL such as http://127.0.0.1:8080")
    return text


def named(identifier: str | None) -> str | None:
    """Raises Invalid for an empty id, which a script's unset variable leaves: no address has one."""
    if identifier == "":
        raise Invalid("the id is empty")
    return identifier


def gpus_of(text: str | None) -> str | None:
    """GPUs as typed. Raises Invalid."""
    try:
        msgspec.convert({"gpus": text or ""}, Settings)
    except msgspec.ValidationError:
        said = "it takes TYPE:COUNT, as v100:8, or cpu:4 for slots of the CPU; up to 64"
        raise Invalid(f"--gpus {text}: {said}") from None
    return text


def filled(option: typer.CallbackParam, value: str | None) -> str | None:
    """Raises Invalid for an empty value, which a script's unset variable leaves."""
    if value == "":
        raise Invalid(f"{option.opts[0]} is empty")
    return value


def scenario_named(context: typer.Context, option: typer.CallbackParam, value: str | None) -> str | None:
    """Raises Invalid."""
    return apart(context, option, filled(option, value))


def folder_path(typed: str | Path) -> Path:
    """A folder, which need not exist: a parser of options.

    Raises ValueError for a file, and for an empty name, which a script's unset variable leaves: it would be
    the current folder. The way up from a folder that does not exist leads to one that does: `new/..` is the
    folder here.
    """
    path = file_path(typed)
    if path.is_file():
        raise ValueError(f"{typed} is a file.")
    return Path(os.path.realpath(path)) if ".." in path.parts and not path.exists() else path


def file_path(typed: str | Path) -> Path:
    """As `folder_path`, for a file."""
    if typed == "":
        raise ValueError("it is empty.")
    return Path(typed)


def _policy(policy: str | None) -> str | None:
    """Raises Invalid."""
    if policy == "":
        raise Invalid("--policy is empty: leave it out for the scenario's")
    return policy and located(policy)


def located(policy: str) -> str:
    """A policy named by its file gets the file's absolute path, since services may run in another folder."""
    file, colon, rest = policy.partition(".py:")
    return f"{Path(file).expanduser().absolute()}{colon}{rest}" if colon else policy


def changes(texts: Sequence[str]) -> list[PolicyChange]:
    """Policies with their times, from SECONDS:POLICY as typed. Raises Invalid."""
    return [_change(text) for text in texts]


def _change(text: str) -> PolicyChange:
    at_s, _, policy = text.partition(":")
    try:
        return msgspec.convert({"at_s": float(at_s), "policy": located(policy)}, PolicyChange)
    except ValueError:
        raise Invalid(f"--policy-at {text}: it takes SECONDS:POLICY, as 600:jps") from None


def typed(context: typer.Context, *parameters: str) -> list[str]:
    """The options that the command line has, of those with these parameters; defaults and variables not."""
    return [
        max(each.opts, key=len)
        for each in context.command.params
        if each.name in parameters and _is_typed(context, each.name)
    ]


def _is_typed(context: typer.Context, parameter: str) -> bool:
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def apart(context: typer.Context, option: typer.CallbackParam, value: T) -> T:
    """A callback of options with a file, which may be written. Raises Invalid if another has the same one."""
    place = _place(option.name, value)
    for other in context.command.params if place is not None else ():
        if other.name != option.name and _place(other.name, context.params.get(other.name or "")) == place:
            raise Invalid(f"{_shown(other.opts)} and {_shown(option.opts)} name the same file: {value}")
    return value


def _place(parameter: str | None, value: object) -> Path | None:
    """None: no file, or one such as /dev/stdout, which is not replaced."""
    if parameter == SCENARIO and isinstance(value, str) and Path(value).suffix:
        value = Path(value)
    if isinstance(value, Path):
        with contextlib.suppress(OSError):
            return outputs.place_of(value)
    return None


def _shown(names: Sequence[str]) -> str:
    name = max(names, key=len)
    return name if name.startswith("-") else name.upper()


def writable(context: typer.Context, option: typer.CallbackParam, file: Path | None) -> Path | None:
    """Before any work is done: raises Invalid if there is no such folder, and Failure if it takes no file."""
    if file is None:
        return None
    apart(context, option, file)
    if str(file) == "-":
        raise Invalid("- would be a file of this name; stdout is /dev/stdout")
    if not file.parent.is_dir():
        raise Invalid(f"{file}: there is no folder {file.parent}")
    try:
        outputs.check(file)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror or error}") from None
    return file


OwnData = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", parser=folder_path, help="Data folder of the stack. Default: yours."
    ),
]
SecretOut = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        dir_okay=False,
        callback=writable,
        help="Write it to this file, readable by its owner alone.",
    ),
]

Api = Annotated[
    str | None,
    typer.Option(
        "--api",
        envvar="HOPYARD_API_URL",
        metavar="URL",
        callback=_url,
        help="Address of the API. Default: the stack of this folder, else the only one of yours.",
        show_default=False,
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of a table; errors are JSON too, on stderr.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        dir_okay=False,
        callback=writable,
        help="Also write the JSON to this file.",
    ),
]
JobArgument = Annotated[
    str,
    typer.Argument(metavar="JOB", callback=named, help="Id of the job.", autocompletion=completion.jobs),
]
Scenario = Annotated[
    str,
    typer.Option(
        "--scenario",
        metavar="NAME|FILE",
        callback=scenario_named,
        help="A name that `hopyard scenarios` lists, or a file.",
        autocompletion=completion.scenarios,
    ),
]
Policy = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME[+OPTION=VALUE…]",
        callback=_policy,
        help="Scheduling policy; one of your own as FILE.py:CLASS.",
        show_default="the scenario's",
        autocompletion=completion.policies,
    ),
]
PoliciesAt = Annotated[
    list[str] | None,
    typer.Option(
        "--policy-at",
        metavar="SECONDS:NAME[+OPTION=VALUE…]",
        help="Switch to another policy after so many seconds; may be given several times.",
        show_default=False,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", min=0, max=SEED_MOST, help="Seed of all random draws.", show_default="the workload's"
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        exists=True,
        dir_okay=False,
        callback=apart,
        help="Take the arrivals from this trace file instead.",
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="WHAT=COLUMN,…",
        help="For a --trace in another format: its columns for submit and gpus, optionally seconds, model, "
        "user; COLUMN:us, :ms, :min or :h if not in seconds.",
    ),
]
Speed = Annotated[float, typer.Option("--speed", min=0.001, max=100_000, help="Cluster seconds per second.")]
ListColumns = Annotated[
    str | None,
    typer.Option("-o", "--columns", metavar="NAME,…", help="Only these columns, in this order."),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print only ids, one a line.")]
Watching = Annotated[bool, typer.Option("-w", "--watch", help="Refresh every two seconds, until Ctrl-C.")]


def chosen(text: str | None, there: Mapping[str, T], usual: Sequence[str]) -> list[T]:
    """The columns that -o names, else the usual ones. Raises Invalid."""
    names = usual if text is None else _parts(text)
    unknown = [name for name in names if name not in there]
    if unknown or not names:
        raise Invalid(f"-o: no column {', '.join(unknown) or 'is named'}; there are {', '.join(there)}")
    return [there[name] for name in names]


def one_or_more(option: str, text: str | None, there: Sequence[str]) -> tuple[str, ...]:
    """Names with commas between them; none without a text. Raises Invalid for one there is not."""
    names = () if text is None else tuple(_parts(text))
    if text is not None and not names:
        raise Invalid(f"{option} is empty; there are {', '.join(there)}")
    if unknown := [name for name in names if name not in there]:
        raise Invalid(f"{option}: {', '.join(unknown)} is none of {', '.join(there)}")
    return names


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
