"""An agent's runner in a process of its own, to be killed: starts a worker, says that it is there, and waits.

`python -m … FOLDER TRAINS`, with the order as a line of JSON on the standard input.
"""

import asyncio
import sys
from pathlib import Path

import msgspec

from schemas.events import StartOrdered
from services.agent.tasks import Saved, Started
from tests.services.agent.process.process_bench import RunningNode


async def main(folder: Path, *, trains: bool) -> None:
    order = msgspec.json.decode(sys.stdin.readline(), type=StartOrdered)
    node = RunningNode(folder)
    await node.begin()
    if trains:
        await node.trained(order)
        await node.until(lambda: node.of(Saved))
    else:
        node.runner.start(order, (0,))
        await node.until(lambda: node.of(Started))
    sys.stdout.write("there\n")
    sys.stdout.flush()
    await asyncio.sleep(1_000)


asyncio.run(main(Path(sys.argv[1]), trains=sys.argv[2] == "1"))
