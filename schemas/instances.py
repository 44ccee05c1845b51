"""Names of a service's instances, as process names, reports and logs have them."""

INSTANCES_MAX = 5
"""largest number of instances of one service"""


def instance_name(service: str, instance: int) -> str:
    """The name of an instance; the first has the name of the service."""
    return service if instance == 1 else f"{service}-{instance}"


def instances_of(service: str) -> list[str]:
    """The names of all instances that a service may have."""
    return [instance_name(service, number) for number in range(1, INSTANCES_MAX + 1)]
