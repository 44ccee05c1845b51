"""Notes of plans that another policy made than the chosen one: how they are worded, and found again."""

from collections.abc import Iterable

PLANNED_BY = "; planned by "
IN_PLACE_OF = " plans in place of "


def replaced(reason: str, by: str) -> str:
    """The note of a plan that has the name of a policy which failed, and was made by another."""
    return f"{reason}{PLANNED_BY}{by}"


def unfit(policy: str, reason: str, by: str) -> str:
    """The note of the first plan of the policy that goes on where the chosen one cannot be loaded."""
    return f"{by}{IN_PLACE_OF}{policy}: {reason}"


def stand_in(notes: Iterable[str]) -> tuple[str, str]:
    """The policy that made the plan in place of the one whose name it has, and the note; empty: none did."""
    found = ((note.rpartition(PLANNED_BY), note) for note in notes)
    return next(((by, note) for (_, said, by), note in found if said and " " not in by), ("", ""))


def about_the_planner(notes: Iterable[str]) -> tuple[str, ...]:
    """The notes that say which policy made the plan, and why."""
    return tuple([note for note in notes if stand_in([note])[0] or IN_PLACE_OF in note])
