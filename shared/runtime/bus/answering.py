"""From a question's bytes to its reply's bytes: the same on every bus."""

from structlog.typing import FilteringBoundLogger

from schemas.codec import Malformed, decode_question, encode_plain
from schemas.questions import Refused
from shared.runtime.bus.contract import Answer
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
    except Exception as error:
        # Whoever asks must hear of it, and the next question is another one.
        log.exception("answer failed")
        return _refused(f"{type(error).__name__}: {error}", counts)
    counts.questions_answered += 1
    return reply


def _refused(reason: str, counts: Counts) -> bytes:
    counts.questions_refused += 1
    return encode_plain(Refused(reason=reason[:REASON_CHARS]))
