"""The `hopyard` command: its groups put together, and errors turned into exit codes."""

import gc
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise

import typer

from hopyard.failures import INTERRUPTED, INVALID, Failure
from hopyard.show.terminal import complain
from schemas.settings import Settings

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""for all processes, unless the environment says otherwise: the arrays are too small for more, and the last
digits of a sum would depend on how many there are"""
AS_JSON = "--json"
HELP = "--help"
COLLECT_EVERY = 200_000
"""objects more than at the last look, before cycles among them are looked for: every 700, as is usual, costs
a tenth of the imports' time, and commands make few cycles and end soon"""

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
    3  nobody answers
  130  interrupted
"""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "run": ("demo", "up"),
    "replay": ("replay",),
    "jobs": ("submit", "ps", "show", "why", "cancel"),
    "nodes": ("status", "nodes", "node"),
    "logs": ("logs",),
    "events": ("events",),
    "policy": ("policy",),
    "diag": ("diag",),
    "simulate": ("simulate", "scenarios"),
    "experiment": ("experiment", "compare"),
    "solve": ("solve",),
    "accuracy": ("accuracy",),
    "calibrate": ("calibrate",),
    "store": ("store",),
    "bench": ("bench",),
    "about": ("version", "config"),
}
"""modules of `hopyard.commands`, each with its commands, in the order of the help: a command imports its own
alone"""
SILENT = frozenset({"jobs", "nodes", "logs", "events", "policy", "about"})
"""modules in which no code logs, and which need not wait for structlog"""


def groups_for(words: Sequence[str]) -> Iterable[str]:
    """The module of the command that is named first; all of them where none is."""
    named = [group for group, commands in GROUPS.items() if words and words[0] in commands]
    return named or GROUPS


def application(words: Sequence[str]) -> typer.Typer:
    """With what this command line may need."""
    groups = groups_for(words)
    silent = SILENT.issuperset(groups) or HELP in words
    app = typer.Typer(
        help=ABOUT,
        callback=_nothing if silent else log_errors_alone,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    for group in groups:
        import_module(f"hopyard.commands.{group}").register(app)
    return app


def _nothing() -> None:
    """Before a command. Without it an application of one command would be that command."""


def log_errors_alone() -> None:
    """Before a command, which may choose otherwise. Logs go to stderr."""
    from shared.runtime.logs import configure_logs  # noqa: PLC0415 - brings structlog, which --help need not

    configure_logs(Settings(log_level="error", log_format="console"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line and exit with its code. Where it asks for JSON, an error is JSON too."""
    os.environ.update(ONE_THREAD | os.environ)
    gc.set_threshold(COLLECT_EVERY)
    words = sys.argv[1:] if arguments is None else list(arguments)
    as_json = AS_JSON in words
    try:
        sys.exit(application(words)(words, prog_name="hopyard", standalone_mode=not as_json))
    except Failure as failure:
        complain(failure, failure.code, as_json=as_json)
    except typer.TyperException as misuse:
        complain(_misused(misuse, words), INVALID, as_json=as_json)
    except typer.Abort:
        complain("interrupted", INTERRUPTED, as_json=as_json)
    except ValueError as error:
        from shared.runtime.files import InvalidFile  # noqa: PLC0415 - brings the YAML parser

        if not isinstance(error, InvalidFile):
            raise
        complain(error, INVALID, as_json=as_json)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # what typer makes of a Ctrl-C that no command took
            complain("interrupted", INTERRUPTED, as_json=as_json)
        raise


def _misused(misuse: typer.TyperException, words: list[str]) -> str:
    """What is wrong with the command line, and what to write where --json is followed by a file."""
    text = misuse.format_message()
    for option, word in pairwise(words):
        if option == AS_JSON and (word == "-" or not word.startswith("-")):
            instead = "alone prints to stdout" if word == "-" else f"--out {word} writes a file"
            return f"{text} --json takes no file: --json {instead}"
    return text


if __name__ == "__main__":
    main()
