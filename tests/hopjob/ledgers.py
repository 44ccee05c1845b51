"""What jobs have trained on, from what their ranks wrote down."""

import re
from collections import Counter
from pathlib import Path

from tests.hopjob.agent import Rank

LOSS = re.compile(r"^samples (\d+) loss (\S+) lr (\S+)$", re.MULTILINE)


def trained(folder: Path) -> Counter[tuple[int, int]]:
    """How often each sample of each epoch was trained on: epoch, index."""
    written = "".join(path.read_text("utf-8") for path in folder.glob("*.ledger"))
    return Counter((int(epoch), int(index)) for epoch, index in map(str.split, written.splitlines()))


def losses(rank: Rank) -> list[float]:
    return [float(loss) for _, loss, _ in LOSS.findall(rank.log.read_text("utf-8"))]


def learning_rates(rank: Rank) -> list[float]:
    return [float(rate) for _, _, rate in LOSS.findall(rank.log.read_text("utf-8"))]
