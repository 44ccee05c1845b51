"""A stack that works while on every subject come messages that are not to be believed.

`FUZZ_SECONDS` for each of both; `python -m tests.fuzz` does the same for as long as it is asked to.
"""

import os
from pathlib import Path

import pytest

from tests.fuzz.campaign import Campaign, run_campaign

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("FUZZ_SECONDS", "10"))
SEED = os.environ.get("FUZZ_SEED", "1")
RATE = 120.0


@pytest.mark.parametrize("lying", [False, True], ids=["of a rogue", "of lying services"])
async def test_no_message_ends_a_service(tmp_path: Path, *, lying: bool) -> None:
    print(f"FUZZ_SEED={SEED}")
    campaign = Campaign(seed=SEED, seconds=SECONDS, rate=RATE, lying=lying)
    outcome = await run_campaign(tmp_path / "data", campaign)
    assert outcome.faults == []
    assert outcome.sent.total() > SECONDS
    assert sum(outcome.dead.values()) > 0
    assert outcome.unspoken == 0
