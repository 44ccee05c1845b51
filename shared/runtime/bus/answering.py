"""Decodes questions and encodes their replies, and decodes replies: the same on every bus that encodes."""

from structlog.typing import FilteringBoundLogger

from schemas.base import Message, Question
from schemas.codec import Malformed, decode_question, decode_reply, encode_plain
from schemas.questions import Refused
from shared.runtime.bus.contract import Answer, Unavailable
from shared.runtime.bus.counts import Counts
from shared.runtime.bus.limits import QUESTION_MAX_BYTES, REASON_CHARS, check_size


async def reply_to(data: bytes, answer: Answer, *, counts: Counts, log: FilteringBoundLogger) -> bytes:
    """The encoded reply; `Refused` for a question that is malformed or whose answer raised."""
    try:
        reply = check_size("the reply", encode_plain(await answer(decode_question(data))), QUESTION_MAX_BYTES)
    except Malformed as error:
        counts.malformed += 1
        log.warning("malformed question", reason=str(error))
        return _refused(f"malformed question: {error}", counts)
    except Unavailable as error:
        log.info("question not answered", reason=str(error))
        return _refused(str(error), counts, passing=True)
    except Exception as error:
        # The asker has to learn of it; the service goes on, since its next question may be answered.
        log.exception("answer failed")
        return _refused(f"{type(error).__name__}: {error}", counts, failed=True)
    counts.questions_answered += 1
    return reply


def reply_of(question: Question, data: bytes) -> Message:
    """The decoded reply. Raises Malformed, and Unavailable where the other side cannot answer now."""
    reply = decode_reply(question, data)
    if isinstance(reply, Refused) and reply.passing:
        raise Unavailable(reply.reason)
    return reply


def _refused(reason: str, counts: Counts, *, passing: bool = False, failed: bool = False) -> bytes:
    counts.questions_refused += 1
    return encode_plain(Refused(reason=reason[:REASON_CHARS], passing=passing, failed=failed))
