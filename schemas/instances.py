"""How instances of a service are named: processes, reports and logs go by it."""

INSTANCES_MAX = 5
"""of a service"""


def instance_name(service: str, instance: int) -> str:
    """The first is named as the service."""
    return service if instance == 1 else f"{service}-{instance}"


def instances_of(service: str) -> list[str]:
    """Names of all that there may be."""
    return [instance_name(service, number) for number in range(1, INSTANCES_MAX + 1)]
