"""Counters of one service's bus since its start, for the metrics endpoint."""

import msgspec


class Counts(msgspec.Struct):
    facts_published: int = 0
    facts_republished: int = 0
    """published again because no acknowledgement came"""
    facts_kept: int = 0
    """kept in the state bucket while their stream had no leader"""
    facts_read: int = 0
    facts_unknown: int = 0
    """skipped, since only a later version knows their type"""
    facts_forgotten: int = 0
    """dropped by the stream and in no archive, before this reader came to them"""
    facts_lost: int = 0
    """missing in a damaged stream or archive"""
    readers_restarted: int = 0
    malformed: int = 0
    """messages put to the dead letters"""
    samples_sent: int = 0
    samples_received: int = 0
    samples_lost: int = 0
    """not sent because the bus was gone, or dropped because the listener was slow"""
    questions_asked: int = 0
    questions_unanswered: int = 0
    questions_answered: int = 0
    questions_refused: int = 0
    reconnects: int = 0
    subjects_refused: int = 0
    """subjects on which the server refused this account to publish or subscribe"""
