"""The types of ids. Each is a plain string that the type checker keeps apart from the others.

Ids of jobs, nodes, placements and plans become parts of subjects, keys and paths. So decoders refuse an id
that has a dot, a wildcard, a space or a slash in it (but for the one slash of a copy's placement).
"""

from typing import Annotated, NewType

from msgspec import Meta

_TOKEN = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_-]+$(?!\n)",  # in Python alone $ also ends before a newline
        max_length=200,
        description="letters, digits, underscores and dashes",
    ),
]
_LINE_OR_NONE = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)", max_length=600)]
_PLACE = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_%~-]+(/[A-Za-z0-9_-]+)?$(?!\n)",
        max_length=600,
        description="letters, digits, underscores, dashes, %, ~; of a copy with a slash and its node",
    ),
]
_LINE = Annotated[
    str,
    Meta(pattern=r"^[^\x00-\x1f\x7f]+$(?!\n)", max_length=100, description="text without control characters"),
]

JobId = NewType("JobId", _TOKEN)
NodeId = NewType("NodeId", _TOKEN)
PlacementId = NewType("PlacementId", _PLACE)
RotaId = NewType("RotaId", _LINE_OR_NONE)
PlanId = NewType("PlanId", _TOKEN)
GpuType = NewType("GpuType", _LINE)
Fingerprint = NewType("Fingerprint", str)
