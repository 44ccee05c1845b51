"""Two GPU types that are two shares of a CPU: what is measured of them is what their quotas say."""

from pathlib import Path

import msgspec
import pytest

from schemas.cluster import ClusterFile
from services.agent.process.folders import Folders
from tests.real.real_builders import executions_in, exported, job_file, nothing_left, real_stack
from tests.stack_watch import until

CONTROLLER = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 10_000
"""short, so that an iteration never waits for long"""
SHARES = {"large": 0.2, "small": 0.1}
"""of a core, by type: so little that a busy machine has it to give"""

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not (CONTROLLER / "cpu.cfs_quota_us").exists(), reason="needs quotas of cgroup v1"),
]


def cluster() -> ClusterFile:
    paths = {"link_bandwidth": 1e9, "network_bandwidth": 1e9}
    return msgspec.convert(
        {
            "name": "quotas",
            "gpu_types": dict.fromkeys(SHARES, paths),
            "nodes": [{"prefix": name, "count": 1, "gpus": 1, "gpu_type": name} for name in SHARES],
        },
        ClusterFile,
    )


def limit(data: Path, node_id: str, share: float) -> None:
    """All workers of a node together."""
    group = CONTROLLER / Folders(run=data / "run" / node_id, jobs=data).groups
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(int(share * PERIOD_US)))
    assert (group / "cpu.cfs_quota_us").read_text().strip() == str(int(share * PERIOD_US))


async def test_a_type_with_twice_the_cpu_is_twice_as_fast_as_was_expected(tmp_path: Path) -> None:
    async with real_stack(tmp_path, of=cluster()) as (stack, client):
        for name, share in SHARES.items():
            limit(tmp_path, f"{name}-0", share)
        for name, share in SHARES.items():
            job = job_file(
                name,
                tmp_path / "ledger",
                script="busy.py",
                model="busy",
                gpu_types=[name],
                samples=200_000 * share,
            )
            job = msgspec.structs.replace(job, workload=msgspec.structs.replace(job.workload, batch_size=64))
            await client.submit(job, name)
        await until(client, lambda status: status.jobs.get("completed", 0) == len(SHARES))
        ran = {one.gpu_type: one for one in executions_in(await exported(stack))}
    for name, one in ran.items():
        print(f"{name}: {one.estimated:.0f} expected, {one.measured:.0f} samples/s, {one.seconds:.0f} s")
        assert one.error < 0.3
    assert 1.3 < ran["large"].measured / ran["small"].measured < 3.0
    await nothing_left(tmp_path)
