"""Facts that the stream has dropped: the monitor, which archives them, is asked for them."""

from collections.abc import Sequence
from typing import NamedTuple

from nats.errors import Error

from schemas.questions import ArchivePage, ReadArchive
from schemas.subjects import FACTS_STREAM
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.consumer import Lost, Raw
from shared.runtime.bus.jetstream.node_reads import older_after, place_of
from shared.runtime.bus.jetstream.questions import JetStreamQuestions
from shared.runtime.damage import REMEDY, Damaged, ranges_text

TIMEOUT_S = 60.0


class ArchivedFacts(NamedTuple):
    """The archive's answer for a stretch that the stream has dropped."""

    upto: int
    """sequence at which the stretch ends"""
    found: list[Raw]
    forgotten: range
    """sequences of facts that were trimmed and are in no archive"""


async def archived_after(connection: Connection, after: int, first: int, *, may_lack: bool) -> ArchivedFacts:
    """The next archived facts after `after`; the stream begins at `first`.

    Raises Lost if no monitor answers at the moment, and Damaged where the archive lacks facts, unless it
    `may_lack` some.
    """
    if connection.is_agents:
        return await _of_node(connection, after, first)
    if not connection.settings.archive:
        return ArchivedFacts(first - 1, [], range(after + 1, first))
    page = await _page(connection, ReadArchive(after=after))
    _check(connection, page, may_lack=may_lack)
    if page.upto <= after and page.begins <= after + 1:
        gone = "its last files are gone" if page.begins else "it is empty"
        _report_lost(connection, [range(after + 1, first)], gone, may_lack=may_lack)
        return ArchivedFacts(first - 1, [], range(0))
    if page.upto <= after or page.begins > first:
        upto = min(page.begins, first) - 1
        return ArchivedFacts(upto, [], range(after + 1, upto + 1))
    found = [Raw(one.seq, one.subject, one.data) for one in page.messages]
    return ArchivedFacts(page.upto, found, range(after + 1, page.begins))


async def archived_at(connection: Connection, seqs: Sequence[int]) -> list[Raw]:
    """The facts of these sequences that are archived. Raises Unavailable, Damaged."""
    found: list[Raw] = []
    left = tuple(seqs) if connection.settings.archive else ()
    while left:
        try:
            page = await _page(connection, ReadArchive(seqs=left))
        except Lost as error:
            raise Unavailable(str(error)) from error
        _check(connection, page, may_lack=False)
        found += [Raw(one.seq, one.subject, one.data) for one in page.messages]
        left = tuple(seq for seq in left if min(left) <= page.upto < seq)
    return found


def _check(connection: Connection, page: ArchivePage, *, may_lack: bool) -> None:
    if page.lacks:
        lost = [range(first, last + 1) for first, last in page.lacks]
        _report_lost(connection, lost, page.damage, may_lack=may_lack)


def _report_lost(connection: Connection, lost: Sequence[range], damage: str, *, may_lack: bool) -> None:
    """Raise Damaged, or only log it where the archive may lack facts."""
    said = f"the archive lacks facts {ranges_text(lost)}{f' ({damage})' if damage else ''}"
    connection.counts.facts_lost += sum(map(len, lost))
    if not may_lack:
        raise Damaged(f"{said}. {REMEDY}")
    connection.log.error("facts are lost", reason=said)


async def _page(connection: Connection, question: ReadArchive) -> ArchivePage:
    """Raises Lost if no monitor answers at the moment."""
    try:
        reply = await JetStreamQuestions(connection).ask(question, TIMEOUT_S)
    except Unavailable as error:
        raise Lost(f"the archive: {error}") from error
    if not isinstance(reply, ArchivePage):
        raise Lost(f"the archive: {reply}")
    return reply


async def _of_node(connection: Connection, after: int, first: int) -> ArchivedFacts:
    """As `archived_after`, for an agent: it asks a service, which asks the archive."""
    try:
        older = await older_after(connection, connection.node, after)
    except (Error, OSError) as error:
        raise Lost(repr(error)) from error
    found = [Raw(row.seq, row.subject, row.data) for row in older.rows]
    if older.upto <= after:
        return ArchivedFacts(first - 1, found, range(after + 1, first))
    return ArchivedFacts(older.upto, found, range(0))


async def first_of(connection: Connection) -> int:
    """Sequence of the oldest fact that the stream has. Raises what NATS raises."""
    if connection.is_agents:
        return (await place_of(connection, connection.node)).first
    state = (await connection.js.stream_info(FACTS_STREAM)).state
    return state.first_seq if state.messages else state.last_seq + 1
