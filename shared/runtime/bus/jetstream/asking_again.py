"""Requests that any process of a service may answer, sent again while no answer comes.

NATS hands each request to one member of a queue group, and a member that hangs goes on getting its share. So
the request is sent again, for a member by chance, while an answer to the earlier ones is still waited for.
"""

import asyncio

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

WAITS_S = (0.2, 0.3, 0.3, 0.4, 0.4, 0.4)
"""how long an answer is waited for after each request"""


async def first_answer(nats: Client, subject: str, data: bytes) -> Msg:
    """The first answer to any of the requests. Raises what NATS raises."""
    limit_s = sum(WAITS_S)
    requests: set[asyncio.Task[Msg]] = set()
    try:
        for wait_s in WAITS_S:
            requests.add(asyncio.create_task(nats.request(subject, data, timeout=2 * limit_s)))
            done, _ = await asyncio.wait(requests, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return done.pop().result()
    finally:
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
    raise Error(f"no service answered within {limit_s:g} s")
