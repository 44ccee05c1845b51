"""What accounts and TLS cost is shown side by side, and each turn has the guard that it is named for."""

from pathlib import Path

import pytest

from hopyard.lab.bench.stack.access import Amounts, Turn, rows
from hopyard.lab.bench.stack.dispatch import Dispatched, dispatched
from hopyard.lab.bench.stack.guard import OPEN, with_accounts, with_tls
from hopyard.lab.bench.stack.submissions import SubmissionTimes


def test_other_guards_are_shown_as_medians_of_ratios_within_a_round() -> None:
    """The machine was three times as slow in the second round, which says nothing of the guards."""

    def turn(took_s: float) -> Turn:
        return Turn(SubmissionTimes(10, [took_s], took_s, 0.02), Dispatched(1.0, 2.0, 0.5, [0.001]))

    took = ((1.0, 2.0), (3.0, 6.0), (2.0, 5.0))
    rounds = [[turn(a), turn(b)] for a, b in took]
    found = {row[0]: row[1:] for row in rows(rounds, Amounts(10, 100, 1))}
    assert found["durable submissions"] == ("1/s", 5.0, 0.5)
    assert found["answer p50"] == ("ms", 2_000.0, 2.0)
    assert found["CPU of a submission"] == ("ms", 2.0, 1.0)
    assert found["facts published and read"] == ("1/s", 50.0, 1.0)


@pytest.mark.parametrize("kind", ["open", "accounts", "tls"])
async def test_facts_pass_the_guard_with_the_credentials_of_a_turn(tmp_path: Path, kind: str) -> None:
    makers = {"open": lambda _: OPEN, "accounts": with_accounts, "tls": with_tls}
    guard = makers[kind](tmp_path)
    assert (await dispatched(tmp_path / "dispatch", 20, 2, guard)).read_s > 0.0
    assert bool(guard.accounts()) == (kind != "open")
    assert bool(guard.tls) == (kind == "tls")
