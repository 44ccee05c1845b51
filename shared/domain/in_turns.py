"""Gangs that use the same GPUs in turns: the holder of the GPUs, and whether a rota's gangs agree. Pure.

What a mode of synchronisation means is in `gangs`; how long a cycle of a rota takes, in `rota`.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from schemas.ids import RotaId
from schemas.placement import Configuration, Gang
from shared.domain.gangs import in_rota, rota


def with_turns(gang: Gang, of: Gang) -> Gang:
    """A gang of a rota with the turns and the place of another, and its own tasks."""
    own, others = in_rota(gang), in_rota(of)
    assert own is not None
    assert others is not None
    return Gang(gang.members, replace(own, turns=others.turns, place=others.place))


def holder(of: str, gang: Gang) -> str:
    """The holder of a gang's GPUs: its whole rota, or the gang alone, by the id `of` its placement or job.

    A rota that moves to other GPUs is another rota.
    """
    own = rota(gang)
    return f"{own} {','.join(f'{one.node}={one.gpus}' for one in gang.members)}" if own else of


def held(gangs_of: Iterable[tuple[str, Gang]]) -> Configuration:
    """GPUs by node that all the gangs hold together; each gang comes with an id, as in `holder`."""
    holders = {holder(of, gang): gang for of, gang in gangs_of}
    gpus: Configuration = {}
    for gang in holders.values():
        for one in gang.members:
            gpus[one.node] = gpus.get(one.node, 0) + one.gpus
    return gpus


def discord(gangs_of: Iterable[Gang]) -> str:
    """Why these gangs cannot take turns as they describe; empty: they can."""
    for name, together in _rotas(gangs_of).items():
        if len({gang.members for gang in together}) > 1:
            return f"rota {name} is on unlike GPUs"
        places = _places(together)
        if len(set(places)) < len(places):
            return f"in rota {name} two have the same place"
    return ""


def at_rest(gangs_of: Iterable[Gang]) -> str:
    """The id of a rota in which no gang has a turn; empty: there is none."""
    return next((name for name, together in _rotas(gangs_of).items() if not _places(together)), "")


def _rotas(gangs_of: Iterable[Gang]) -> dict[RotaId, list[Gang]]:
    rotas: dict[RotaId, list[Gang]] = {}
    for gang in gangs_of:
        if own := rota(gang):
            rotas.setdefault(own, []).append(gang)
    return rotas


def _places(together: Iterable[Gang]) -> list[int]:
    """The places of the gangs that have a turn."""
    return [own.place for gang in together if (own := in_rota(gang)) and own.turns]
