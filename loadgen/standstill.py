"""When a simulation stands still for good, and what its figures are then about. Pure."""

from shared.domain.ledger import Ledger

STUCK_S = 24 * 3600.0
"""least cluster time without a running job, or a fact about one, after which the jobs left count as stuck"""
STUCK_ROUNDS = 3.0
"""least number of rounds for the same: a job may be measured in one round, and be placed in the next"""


def stuck_after_s(round_s: float) -> float:
    return max(STUCK_S, STUCK_ROUNDS * round_s)


def end_before_standstill(ledger: Ledger, last_s: float, round_s: float) -> None:
    """Let a whole log's ledger end with its last fact about a job, at `last_s`, if the jobs left are stuck.

    The time until that is certain would else be most of every figure over time.
    """
    left = [record for record in ledger.jobs.values() if not record.ended]
    still_s = ledger.at - last_s
    if left and not any(record.present for record in left) and still_s > stuck_after_s(round_s):
        ledger.at = last_s
        ledger.plans = [plan for plan in ledger.plans if plan.view.at <= last_s]
