"""When a simulation stands still for good, and what its figures are then about. Pure."""

from shared.domain.ledger import Ledger

STUCK_S = 24 * 3600.0
"""jobs count as stuck after so much cluster time, at least, in which none ran and nothing happened to one"""
STUCK_ROUNDS = 3.0
"""and after so many rounds, at least: a job may be measured in one, and be placed by the plan of the next"""


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
