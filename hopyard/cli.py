"""The `hopyard` command: its groups put together, and errors turned into exit codes."""

import errno
import gc
import os
import signal
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from itertools import chain, pairwise
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from hopyard.failures import INTERRUPTED, INVALID, REFUSED, Failure, Invalid, not_installed, worded
from hopyard.local.threads import ONE_THREAD
from hopyard.show import streams
from hopyard.show.terminal import complain, say
from hopyard.stopping import BY_SIGNAL, STOPPED, end_at_once, runs_until
from schemas.settings import Settings

AS_JSON = "--json"
STOPPING = (signal.SIGTERM, signal.SIGHUP)
HELP = frozenset({"--help", "-h"})
VERSION = "--version"
COMPLETE = "_HOPYARD_COMPLETE"
"""a variable that the completion of a shell sets"""
LIBRARY_S_OWN = "Value error, "
"""before the message of an error that a parser of an option raised"""
OF_A_PARSER = "value_error"
NOT_WHOLE = "int_parsing"
"""kinds of errors of the library; the others are those of numbers"""
OF_FILES = frozenset(
    {
        *(errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EIO),
        *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
    }
)
"""errors of a folder or a disk that refuses what a command writes or reads: the user has to repair it"""
COLLECT_EVERY = 200_000
"""objects more than at the last look, before cycles among them are looked for: every 700, as is usual, costs
a tenth of the imports' time, and commands make few cycles and end soon"""

_stopped_by: int = signal.SIGINT
"""the signal that stopped this command, if one did"""

ABOUT = """Schedule deep-learning training jobs on a shared cluster of unlike GPUs.

See it work, with nothing but this machine:

  $ hopyard demo

Run it, and give it work from another terminal:

  $ hopyard up
  $ hopyard submit job.yaml
  $ hopyard ps
  $ hopyard why JOB

Compare policies on one workload, in virtual time:

  $ hopyard simulate --scenario hops-64 --policy hops
  $ hopyard simulate --scenario hops-64 --policy fifo
  $ hopyard compare --scenario hops-64 --policies hops,fifo

Exit codes:

    0  done
    1  refused, or a run that did not go well
    2  bad usage, or an invalid file
    3  unreachable: nothing answers at the address
    4  a job that was waited for failed; 5: was cancelled; 6: was rejected
  130  interrupted
"""

PANELS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Jobs": {
        "jobs": ("submit", "ps", "show", "why", "cancel", "priority", "hold", "release"),
        "logs": ("logs",),
        "events": ("events",),
    },
    "Cluster": {
        "nodes": ("status", "nodes", "node"),
        "policy": ("policy",),
        "diag": ("diag",),
        "quarantine": ("quarantine",),
        "accuracy": ("accuracy",),
        "calibrate": ("calibrate",),
        "store": ("store",),
        "slurm": ("slurm",),
    },
    "Stack": {
        "run": ("up", "demo"),
        "restart": ("restart",),
        "backup": ("backup", "restore"),
        "token": ("page", "credentials", "token"),
        "agent": ("agent",),
        "replay": ("replay",),
        "about": ("version", "config"),
    },
    "Laboratory": {
        "simulate": ("simulate", "scenarios"),
        "catalogue": ("catalogue",),
        "experiment": ("experiment", "compare"),
        "solve": ("solve",),
        "bench": ("bench",),
    },
}
"""parts of the help, with modules of `hopyard.commands` and the commands of each"""
GROUPS = {module: commands for modules in PANELS.values() for module, commands in modules.items()}
"""a command imports its own module alone"""
SILENT = frozenset({"jobs", "nodes", "logs", "events", "policy", "about"})
"""modules in which no code logs, and which need not wait for structlog"""


class WrongValue(Invalid):
    """An option or argument does not take what was given."""


class Commands(TyperGroup):
    """Says what is wrong with a value as the commands themselves do, in a line and in their words."""

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401 - the library does not export its type
        try:
            return super().invoke(ctx)
        except typer.BadParameter as misuse:
            if misuse.param is None or not misuse.message:  # nothing was given
                raise
            raise WrongValue(_in_our_words(misuse)) from None


def _in_our_words(misuse: typer.BadParameter) -> str:
    """The option or argument, what was given, and what it takes."""
    param: Any = misuse.param
    name = param.metavar if param.param_type_name == "argument" else max(param.opts, key=len)
    wrong: list[dict[str, Any]] = getattr(misuse.__cause__, "errors", list)()
    given = wrong[0]["input"] if wrong else None
    if given == "" or misuse.message.startswith("file '' "):
        return f"{name} is empty"
    if wrong and wrong[0]["type"] != OF_A_PARSER:
        kind = "a whole number" if wrong[0]["type"] == NOT_WHOLE else "a number"
        return f"{name} {given}: it takes {kind}{_bounds(param.min, param.max)}"
    return f"{name}: {misuse.message.removeprefix(LIBRARY_S_OWN).removesuffix('.')}"


def _bounds(least: float | None, most: float | None) -> str:
    if least is None:
        return "" if most is None else f" up to {most:,}"
    return f" from {least:,} on" if most is None else f" from {least:,} to {most:,}"


def groups_for(words: Sequence[str]) -> Iterable[str]:
    """The module of the first command on the line; all modules if there is none."""
    first = "version" if words and words[0] == VERSION else next(iter(words), "")
    named = [group for group, commands in GROUPS.items() if first in commands]
    return named or GROUPS


def application(words: Sequence[str]) -> typer.Typer:
    """The typer application, with the commands that this command line may need."""
    groups = groups_for(words)
    silent = SILENT.issuperset(groups) or not HELP.isdisjoint(words)
    app = typer.Typer(
        cls=Commands,
        help=ABOUT,
        callback=_nothing if silent else log_errors_alone,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": sorted(HELP)},
    )
    for group in groups:
        import_module(f"hopyard.commands.{group}").register(app)
    _put_in_panels(app)
    return app


def _put_in_panels(app: typer.Typer) -> None:
    panels = {name: panel for panel, modules in PANELS.items() for name in chain(*modules.values())}
    for command in app.registered_commands:
        command.rich_help_panel = panels[command.name or ""]
    for group in app.registered_groups:
        group.rich_help_panel = panels[group.name or ""]


def _print_version(*, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - brings the parser of e-mail

        sys.stdout.write(f"hopyard {version('hopyard')}\n")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option(VERSION, is_eager=True, callback=_print_version, help="Print the version and exit.")
]


def _nothing(*, version: Version = False) -> None:
    """Runs before a command. Without a callback an application of one command would be that command."""


def log_errors_alone(*, version: Version = False) -> None:  # noqa: ARG001 - as above
    """Runs before a command: only errors are logged, to stderr, unless the command chooses otherwise."""
    from shared.runtime.process.logs import configure_logs  # noqa: PLC0415 - brings structlog, which --help need not

    configure_logs(Settings(log_level="error", log_format="console"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line and exit with its code. Where it asks for JSON, an error is JSON too."""
    os.environ.update(ONE_THREAD | os.environ)
    gc.set_threshold(COLLECT_EVERY)
    words = sys.argv[1:] if arguments is None else list(arguments)
    as_json = AS_JSON in words
    streams.make_ready(as_json=as_json, own_process=arguments is None)
    if odd := [word for word in words if not streams.is_text(word)]:
        complain(f"{odd[0]!a} is not text in {sys.getfilesystemencoding()}", INVALID, as_json=as_json)
    _clean_up_when_stopped(STOPPING if arguments is None else ())
    stdout = sys.stdout  # typer puts another in its place once nobody reads it
    try:
        try:
            _run(words, as_json=as_json)
        finally:
            stdout.flush()  # the interpreter does it as it ends, and complains in its own words
    except streams.NotWritten as error:
        streams.give_up()
        if error.closed_early:
            sys.exit(REFUSED)
        why = (error.strerror or str(error)).lower()
        complain(f"stdout takes nothing more: {why}", REFUSED, as_json=as_json)
    except OSError as error:
        if error.errno not in OF_FILES or not error.strerror:
            raise
        complain(worded(error), REFUSED, as_json=as_json)


def _run(words: Sequence[str], *, as_json: bool) -> NoReturn:
    """Raises SystemExit, and NotWritten."""
    try:
        sys.exit(application(_typed() or words)(words, prog_name="hopyard", standalone_mode=not as_json))
    except Failure as failure:
        said = _misused(str(failure), words) if isinstance(failure, WrongValue) else failure
        complain(said, _code(failure.code), as_json=as_json)
    except typer.TyperException as misuse:
        complain(_misused(misuse.format_message(), words), INVALID, as_json=as_json)
    except (typer.Abort, KeyboardInterrupt):  # the second while a command is imported
        _interrupted(words, as_json=as_json)
    except ModuleNotFoundError as error:
        lacking = not_installed(error)
        if lacking is None:
            raise
        complain(lacking, REFUSED, as_json=as_json)
    except ValueError as error:
        from shared.runtime.files import InvalidFile  # noqa: PLC0415 - brings the YAML parser

        if not isinstance(error, InvalidFile):
            raise
        complain(error, INVALID, as_json=as_json)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # what typer makes of a Ctrl-C that no command took
            _interrupted(words, as_json=as_json)
        raise


def _clean_up_when_stopped(signals: Iterable[signal.Signals]) -> None:
    """Have SIGTERM and SIGHUP end a command as Ctrl-C does, with its clean-up.

    A signal that is ignored, as under `nohup`, stays ignored.
    """
    for number in signals:
        if signal.getsignal(number) in {signal.SIG_DFL, end_at_once}:
            signal.signal(number, _stopped)


def _stopped(number: int, _: object) -> NoReturn:
    """Raises KeyboardInterrupt: SystemExit within a policy would count as that policy's failure."""
    global _stopped_by  # noqa: PLW0603 - a process is ended by one signal
    _stopped_by = number
    raise KeyboardInterrupt


def _code(code: int) -> int:
    """The exit code of a command that may have been stopped by a signal, as shells have it."""
    return BY_SIGNAL + _stopped_by if code == INTERRUPTED else code


def _interrupted(words: Sequence[str], *, as_json: bool) -> NoReturn:
    """End with a line, without Python's warnings of coroutines that had not begun."""
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    if runs_until(_stopped_by, words):
        say(STOPPED)
        sys.exit()
    complain("interrupted", _code(INTERRUPTED), as_json=as_json)


def _typed() -> list[str]:
    """The command line that a shell asks to complete, as far as it is typed."""
    if COMPLETE not in os.environ:
        return []
    return os.environ.get("_TYPER_COMPLETE_ARGS", os.environ.get("COMP_WORDS", "")).split()[1:]


def _misused(text: str, words: Sequence[str]) -> str:
    """What is wrong with the command line, and what to write where --json is followed by a file."""
    for option, word in pairwise(words):
        if option == AS_JSON and (word == "-" or not word.startswith("-")):
            instead = "alone prints to stdout" if word == "-" else f"--out {word} writes a file"
            return f"{text.rstrip('.')}; --json takes no file: --json {instead}"
    return text


if __name__ == "__main__":
    main()
