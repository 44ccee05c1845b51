"""`python -m tests.upgrade COMMIT`: a stack of that commit is upgraded to this checkout while jobs train.

Exit code 1 where a job was lost or a rule of the audit is broken.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.upgrade.installed import of_commit
from tests.upgrade.rolling import upgraded


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade", description=__doc__)
    parser.add_argument("commit", help="of this repository's history")
    commit = parser.parse_args().commit
    with tempfile.TemporaryDirectory(prefix="rolling-") as folder:
        began = time.monotonic()
        done = asyncio.run(upgraded(of_commit(commit, Path(folder) / "version"), Path(folder)))
    for one in done.restarts:
        print(f"{one.name:24} ready after {one.took_s:5.1f} s")
    if not done.restarts:
        print(f"stopped first: {done.said.strip()}")
    lost = sorted(set(done.acknowledged) ^ set(done.submitted))
    print(f"{len(done.acknowledged)} jobs, {done.facts} facts, {time.monotonic() - began:.0f} s")
    print(f"lost or doubled: {', '.join(lost) or 'none'}; rules broken: {done.broken or 'none'}")
    return 1 if lost or done.broken else 0


if __name__ == "__main__":
    sys.exit(main())
