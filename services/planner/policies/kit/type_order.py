"""An order of GPU types that an option lists, as the code of some authors does. Pure."""

from collections.abc import Sequence


def listed_first(types: Sequence[str], listed: Sequence[str]) -> list[int]:
    """Positions of the types: the `listed` ones in the order of the list, then the others in their own."""
    place = {name: index for index, name in enumerate(listed)}
    return sorted(range(len(types)), key=lambda kind: (place.get(types[kind], len(place)), kind))
