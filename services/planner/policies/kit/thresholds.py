"""The thresholds between queues, as an option: numbers above 0, separated by spaces, in any order."""

from typing import Annotated

from msgspec import Meta

NUMBER = r"(?=[0-9.]*[1-9])[0-9]{1,12}(\.[0-9]{1,12})?"

Thresholds = Annotated[
    str, Meta(pattern=rf"^{NUMBER}( +{NUMBER})*$", description="numbers above 0, between spaces")
]


def ascending(thresholds: str) -> tuple[float, ...]:
    return tuple(sorted(map(float, thresholds.split())))
