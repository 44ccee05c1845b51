import sys
from pathlib import Path

import pytest

from hopyard.local.accounts import admitted, expel, is_expelled
from tests.synced_paths import synced_paths


@pytest.mark.skipif(sys.platform != "linux", reason="looks at open files as Linux shows them")
def test_an_expelled_node_stays_expelled_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = admitted(tmp_path, "gpu-1")
    synced = synced_paths(monkeypatch)
    assert expel(tmp_path, "gpu-1")
    assert is_expelled(tmp_path, "gpu-1")
    assert not account.exists()
    assert synced[-2:] == [account.parent] * 2, "once with the mark, and once without the account"
