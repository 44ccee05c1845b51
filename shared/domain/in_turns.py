"""Gangs that have the same GPUs in turns: who holds these, and whether the gangs of a rota agree. Pure.

What a mode of synchronisation means is in `gangs`; how long a cycle of a rota takes, in `rota`.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from schemas.ids import RotaId
from schemas.placement import Configuration, Gang, Relaxed
from shared.domain.gangs import rota


def with_turns(gang: Gang, of: Gang) -> Gang:
    """A gang of a rota with the turns and the place of another, and its own tasks."""
    assert isinstance(gang.sync, Relaxed)
    assert isinstance(of.sync, Relaxed)
    return Gang(gang.members, replace(gang.sync, turns=of.sync.turns, place=of.sync.place))


def turning(gang: Gang) -> Gang:
    """A gang that is resident only, as it would be with a turn."""
    if isinstance(gang.sync, Relaxed) and not gang.sync.turns:
        return Gang(gang.members, replace(gang.sync, turns=1))
    return gang


def holder(of: str, gang: Gang) -> str:
    """Who holds its GPUs: itself, by the id `of` its placement or job, or all gangs of its rota together.

    A rota that is formed anew on other GPUs is another one.
    """
    own = rota(gang)
    return f"{own} {','.join(f'{one.node}={one.gpus}' for one in gang.members)}" if own else of


def held(gangs_of: Iterable[tuple[str, Gang]]) -> Configuration:
    """GPUs by node that all of them hold together; each gang with an id, as in `holder`."""
    holders = {holder(of, gang): gang for of, gang in gangs_of}
    gpus: Configuration = {}
    for gang in holders.values():
        for one in gang.members:
            gpus[one.node] = gpus.get(one.node, 0) + one.gpus
    return gpus


def discord(gangs_of: Iterable[Gang]) -> str:
    """Why gangs cannot take turns as they say; empty: they can."""
    for name, together in _rotas(gangs_of).items():
        if len({gang.members for gang in together}) > 1:
            return f"rota {name} is on unlike GPUs"
        places = [turn.place for turn in _turns(together)]
        if len(set(places)) < len(places):
            return f"in rota {name} two have the same place"
    return ""


def at_rest(gangs_of: Iterable[Gang]) -> str:
    """A rota in which nobody has a turn; empty: there is none."""
    return next((name for name, together in _rotas(gangs_of).items() if not _turns(together)), "")


def _rotas(gangs_of: Iterable[Gang]) -> dict[RotaId, list[Gang]]:
    rotas: dict[RotaId, list[Gang]] = {}
    for gang in gangs_of:
        if own := rota(gang):
            rotas.setdefault(own, []).append(gang)
    return rotas


def _turns(together: Iterable[Gang]) -> list[Relaxed]:
    return [gang.sync for gang in together if isinstance(gang.sync, Relaxed) and gang.sync.turns]
