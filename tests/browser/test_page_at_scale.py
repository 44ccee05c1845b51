"""The page over a large cluster: it draws what is seen and no more, and complains of nothing."""

from pathlib import Path

import pytest

from hopyard.lab.bench.page.opening import CANVAS, COMPLAINTS, JOBS, NODES, ROWS, WAITING, page

pytestmark = pytest.mark.browser

ROWS_MOST = 700
"""of the tables, whatever there is: 50 jobs, 12 plans, services, and the 256 nodes if they are opened"""


async def test_a_large_cluster_stays_smooth(tmp_path: Path) -> None:
    measured = await page(tmp_path)
    figures = {each.name: each.value for each in measured.figures}
    assert figures[WAITING] == JOBS - JOBS // 2 - NODES
    assert figures["updates seen"] > 0, "it follows the facts"
    assert figures[ROWS] < ROWS_MOST
    assert figures[CANVAS] < 1_000, "only the rows that are seen are drawn"
    assert figures[COMPLAINTS] == 0
