"""A stack of an earlier version goes on as the present one while jobs train; a later one has no way back.

Versions are installed one over the other in one place, and the commands are those of `docs/operating.md`.
"""

from pathlib import Path

import pytest

from hopyard.failures import REFUSED
from shared.runtime.process import joining
from shared.runtime.process.joining import PROTOCOL
from tests.paths import ROOT
from tests.upgrade.installed import hold_ports, kept, present
from tests.upgrade.rolling import Machine, upgraded

pytestmark = pytest.mark.slow

EARLIEST = "0.1.0-482e3b2"
PROCESSES = 10
"""of `tiny`: six services, four agents"""


async def test_a_stack_of_the_earliest_version_is_upgraded_while_jobs_train(tmp_path: Path) -> None:
    earliest = kept(EARLIEST, tmp_path / "earliest")
    hold_ports(earliest)
    done = await upgraded(earliest, tmp_path)
    names = [one.name for one in done.restarts]
    assert len(names) == PROCESSES, done.said
    assert names[-1] == "admission"
    assert done.broken == []
    assert sorted(done.submitted) == sorted(done.acknowledged)
    print({one.name: round(one.took_s, 1) for one in done.restarts}, len(done.acknowledged), "jobs")


async def test_an_earlier_version_does_not_start_on_the_data_of_a_later_one(tmp_path: Path) -> None:
    later = present(tmp_path / "later", "shared")
    file = later / Path(joining.__file__).relative_to(ROOT)
    number = f"PROTOCOL = {PROTOCOL}\n"
    assert number in file.read_text()
    file.write_text(file.read_text().replace(number, f"PROTOCOL = {PROTOCOL + 1}\n"))
    machine = Machine(tmp_path, later)
    async with machine.up() as client:
        await client.status()
    machine.installed.install(ROOT)
    code, _, said = await machine.run(*machine.up_words())
    assert code == REFUSED
    assert f"a later version has run this stack (protocol {PROTOCOL + 1}, and this version speaks" in said
    assert "Traceback" not in said
