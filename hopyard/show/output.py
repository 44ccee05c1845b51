"""The output of jobs, a line at a time."""

from hopyard.show.terminal import put_line, say
from schemas.output import OutputLine


def show_output(line: OutputLine, *, plain: bool = False, job: str = "", beside: bool = False) -> None:
    """Print a line after its node and rank, or alone if `plain`.

    `job`: the line's job, if the output has lines of several jobs; `beside`: print on stderr.
    """
    source = " ".join(filter(None, (job, line.node if line.rank is None else f"{line.node}/{line.rank}")))
    if line.problem:
        say(f"{source}: {line.problem}")
        return
    text = line.text if plain else f"{source}  {line.text}"
    if beside:
        say(text)
    else:
        put_line(text)
