"""The output of jobs, a line at a time: whole in a pipe; on a terminal as far as it gives that no orders."""

import re
import sys

from hopyard.show.terminal import say
from hopyard.show.units import on_one_line
from schemas.output import OutputLine
from shared.domain.controls import CONTROLS

ORDERS = re.compile(
    r"(?P<kept>\x1b\[[0-9;:]*m|\t)"
    r"|\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])"
    rf"|\n|{CONTROLS.pattern}"
)
"""what a terminal would obey; of that, colours and tabs are kept"""
NO_COLOUR = "\x1b[0m"


def show_output(line: OutputLine, *, plain: bool = False, job: str = "", beside: bool = False) -> None:
    """Print a line after its node and rank, or alone if `plain`.

    `job`: the line's job, if the output has lines of several jobs; `beside`: print on stderr.
    """
    source = " ".join(filter(None, (job, line.node if line.rank is None else f"{line.node}/{line.rank}")))
    if line.problem:
        say(on_one_line(f"{source}: {line.problem}"))
        return
    out = sys.stderr if beside else sys.stdout
    text = on_terminal(line.text) if out.isatty() else line.text
    out.write(f"{text}\n" if plain else f"{source}  {text}\n")
    out.flush()


def on_terminal(text: str) -> str:
    """A line as a terminal would leave it: of a progress bar its last state, with its colours and tabs."""
    *_, last = text.rstrip("\r").split("\r")
    shown = ORDERS.sub(lambda found: found["kept"] or "", last)
    return shown + NO_COLOUR if "\x1b" in shown else shown
