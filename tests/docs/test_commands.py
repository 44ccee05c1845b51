"""The commands that pages print can be typed: each command, option and policy on the line exists."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import typer

from hopyard.cli import application
from hopyard.lab.experiments.baselines import contender
from services.planner.policies.registry import Registry, UnfitPolicy
from shared.domain.policy_names import parted
from tests.docs.pages import PAGES, name

BLOCK = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"(?<!`)`(hopyard [^`]+)`(?!`)")
ENDS = frozenset({"|", "&", "&&", ";", ">", "<", "<<<"})
COMMANDS = typer.main.get_command(application([]))
VALUE_LEFT_OUT = "requires an argument."
"""as prose does that names an option"""
OWN = ".py:"
"""in the name of a policy that the reader writes"""


def lines(text: str) -> Iterator[str]:
    """Printed for a shell, or quoted; what is written over several lines, in one."""
    for block in BLOCK.findall(text):
        for line in re.sub(r"\\\n", " ", block).splitlines():
            yield line.removeprefix("$ ")
    for quoted in QUOTED.findall(BLOCK.sub("", text)):
        yield " ".join(quoted.split())


def typed(line: str) -> Iterator[list[str]]:
    """The words behind each `hopyard` of a line."""
    words = _words(line)
    for at, word in enumerate(words):
        if word == "hopyard" and all(before in ENDS or _comes_before(before) for before in words[:at][-1:]):
            rest = words[at + 1 :]
            yield rest[: next((end for end, one in enumerate(rest) if one in ENDS), len(rest))]


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # a quotation mark of the prose, or a line of output
        return []


def _comes_before(word: str) -> bool:
    """A variable, or a command that runs another."""
    return re.match(r"[A-Z_]+=", word) is not None or word in {"--no-dev", "head", "umask"}


def wrong(words: Sequence[str]) -> str:
    """What is, if the line names a command that does not exist, or an option that it has not."""
    if not words or words[0] in {"COMMAND", "-h", "--help", "--install-completion"}:
        return ""
    command, rest = COMMANDS, list(words)
    while isinstance(command, typer.core.TyperGroup) and rest:
        found = command.commands.get(rest[0])
        if found is None:
            return f"no command {rest[0]}"
        command, rest = found, rest[1:]
    try:
        values, _, _ = command.make_parser(command.context_class(command)).parse_args(rest)
    except typer.TyperException as misuse:
        return "" if misuse.message.endswith(VALUE_LEFT_OUT) else misuse.message
    return next(filter(None, map(_unfit, _policies(words[0], values))), "")


def _policies(command: str, values: dict[str, object]) -> Iterator[tuple[str, bool]]:
    """Those named on the line; true: settings may follow, as in comparisons."""
    one, several, later = (values.get(word) for word in ("policy", "policies", "policies_at"))
    if command != "slurm" and isinstance(one, str):
        yield one, False
    if isinstance(several, str):
        yield from ((each, True) for each in several.split(","))
    if isinstance(later, list):
        yield from ((str(each).partition(":")[2], False) for each in later)


def _unfit(policy: tuple[str, bool]) -> str:
    written, settings = policy
    if OWN in written or written in {"all", "A", "B", "…"} or ":" in parted(written)[0]:
        return ""
    try:
        if settings:
            contender(written)
        else:
            Registry().find(written)
    except (UnfitPolicy, ValueError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_that_a_page_prints_exist(page: Path) -> None:
    found = {
        " ".join(words): fault
        for line in lines(page.read_text("utf-8"))
        for words in typed(line)
        if (fault := wrong(words))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("hopyard simulate --scenario tiny --policy hops+window_factor=2  # a comment", ""),
        ("hopyard compare --policies hops,sia+round_s=60", ""),
        ("hopyard simulate --policy sia+round_s=60", "policy sia has no option round_s"),
        ("SOME=1 hopyard simulate --scenarioo tiny", "No such option: --scenarioo"),
        ("hopyard node drain gpu-1 && hopyard node mend gpu-1", "no command mend"),
        ("hopyard simulate --policy ./greedy.py:Greedy | tee it", ""),
    ],
)
def test_what_counts_as_wrong_on_a_line(line: str, fault: str) -> None:
    found = next(filter(None, map(wrong, typed(line))), "")
    assert found.startswith(fault)
    assert bool(found) == bool(fault)


def test_pages_print_commands() -> None:
    assert (
        len([words for page in PAGES for line in lines(page.read_text("utf-8")) for words in typed(line)])
        > 200
    )
