"""What went through one service's bus since it started: plain numbers, for the metrics endpoint."""

import msgspec


class Counts(msgspec.Struct):
    facts_published: int = 0
    facts_republished: int = 0
    """published again because no acknowledgement came"""
    facts_kept: int = 0
    """beside their stream, which had no leader"""
    facts_read: int = 0
    facts_unknown: int = 0
    """of a type that a later version brought: skipped"""
    facts_forgotten: int = 0
    """fell out of the stream's limits before this reader came to them"""
    facts_lost: int = 0
    """missing between others that are there: the stream is damaged"""
    readers_restarted: int = 0
    malformed: int = 0
    """messages put to the dead letters"""
    samples_sent: int = 0
    samples_received: int = 0
    samples_lost: int = 0
    """not sent because the bus was gone, or not heard because the listener was slow"""
    questions_asked: int = 0
    questions_unanswered: int = 0
    questions_answered: int = 0
    questions_refused: int = 0
    reconnects: int = 0
    subjects_refused: int = 0
    """what the server did not let this account publish or hear"""
