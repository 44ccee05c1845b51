"""The names things go by. Each is a plain string that the type checker keeps apart from the others."""

from typing import NewType

JobId = NewType("JobId", str)
NodeId = NewType("NodeId", str)
PlacementId = NewType("PlacementId", str)
RotaId = NewType("RotaId", str)
PlanId = NewType("PlanId", str)
GpuType = NewType("GpuType", str)
Fingerprint = NewType("Fingerprint", str)
