"""How a job's processes are started, from the job file: command, surroundings, limits. Pure.

The values end up in arguments and environments of processes on other machines.
"""

import re
from collections.abc import Mapping

from shared.domain.invalid_job import InvalidJob
from shared.domain.quantities import bytes_in, seconds_in, seconds_of_clock

ENVIRONMENT_BYTES_MAX = 65_536
"""bytes of names and values together, which every order of the job carries and the log keeps"""
TIME_LIMIT_S = (1.0, 1e8)
MEMORY_BYTES = (1e6, 1e15)
"""least and most bytes; a smaller limit is taken for a mistake in the unit"""
OF_THE_AGENT = frozenset(
    {
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"),
        *("MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES"),
    }
)
"""variables that say which process of its gang a process is, and which GPUs are its own"""
PREFIXES_OF_THE_AGENT = ("HOPJOB_", "HOPYARD_")
NO_NAME = "is not a name of a variable: letters, digits and _, no digit first"
KEPT = "the agent sets this variable, or keeps it from jobs"
LINES = "holds a control character; put text of several lines into a file"
SHOWN = 40
"""how many characters of a refused text an error shows"""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def command_words(command: str | list[str]) -> tuple[str, ...]:
    """The command as words; a line becomes `sh -c` and the line. Raises InvalidJob."""
    words = ("sh", "-c", command) if isinstance(command, str) else tuple(command)
    if isinstance(command, str) and not command.strip():
        raise InvalidJob("$.command", "is empty")
    if words and not words[0].strip():
        raise InvalidJob("$.command[0]", "is empty; it names the program")
    for index, word in enumerate(words):
        if "\0" in word:
            field = "$.command" if isinstance(command, str) else f"$.command[{index}]"
            raise InvalidJob(field, "holds a NUL, which no argument of a process can")
    return words


def checked_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The job's variables, checked. Raises InvalidJob."""
    size = sum(len(name.encode()) + len(value.encode()) for name, value in variables.items())
    if size > ENVIRONMENT_BYTES_MAX:
        raise InvalidJob("$.environment", f"{size:,} bytes; it may have {ENVIRONMENT_BYTES_MAX:,}")
    for name, value in variables.items():
        _check_variable(name, value)
    return dict(variables)


def _check_variable(name: str, value: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidJob("$.environment", f"{name[:SHOWN]!r} {NO_NAME}")
    if name in OF_THE_AGENT or name.startswith(PREFIXES_OF_THE_AGENT):
        raise InvalidJob(f"$.environment.{name}", KEPT)
    if CONTROL.search(value):
        raise InvalidJob(f"$.environment.{name}", LINES)


def time_limit_s(given: float | str | None) -> float | None:
    """The limit in seconds. Raises InvalidJob."""
    if given is None:
        return None
    seconds = given if not isinstance(given, str) else (seconds_in(given) or seconds_of_clock(given) or 0.0)
    return _within("$.time_limit", float(seconds), TIME_LIMIT_S, "seconds")


def memory_bytes(given: float | str | None) -> float | None:
    """The limit in bytes. Raises InvalidJob."""
    if given is None:
        return None
    amount = given if not isinstance(given, str) else (bytes_in(given) or 0.0)
    return _within("$.memory", float(amount), MEMORY_BYTES, "bytes")


def _within(field: str, value: float, bounds: tuple[float, float], unit: str) -> float:
    least, most = bounds
    if not least <= value <= most:
        raise InvalidJob(field, f"{value:g} {unit}; it may be from {least:g} to {most:g}")
    return value
