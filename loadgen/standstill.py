"""When a simulation stands still for good, and what its figures are then about. Pure."""

from shared.domain.ledger import Ledger

STUCK_S = 24 * 3600.0
"""cluster time without a running job or a fact about one, after which the jobs left count as stuck"""


def end_before_standstill(ledger: Ledger, last_s: float) -> None:
    """Let a whole log's ledger end with its last fact about a job, at `last_s`, if the jobs left are stuck.

    The day until that is certain would else be most of every figure over time.
    """
    left = [record for record in ledger.jobs.values() if not record.ended]
    stuck = left and not any(record.present for record in left) and ledger.at - last_s > STUCK_S
    if stuck:
        ledger.at = last_s
        ledger.plans = [plan for plan in ledger.plans if plan.view.at <= last_s]
