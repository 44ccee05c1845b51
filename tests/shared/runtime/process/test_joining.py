"""What a process that joins takes over from the stack."""

from msgspec.structs import replace

from schemas.settings import Settings
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.process.joining import KEY, SHARED, announce, announced, variables
from shared.runtime.settings import load_settings, sources_of
from shared.runtime.shell.virtual import run

STACK = Settings(clock_origin=1234.0625, speed=60.0, nats_replicas=3, nats_token="secret", web_port=8080)


def handed_on(name: str = "admission") -> dict[str, str | int | float] | None:
    async def main() -> dict[str, str | int | float] | None:
        bus = MemoryBus(LoopClock())
        await announce(bus, name, STACK)
        return await announced(bus)

    return run(main)


def test_an_agent_has_the_clock_and_the_limits_of_its_stack() -> None:
    shared = handed_on()
    assert shared is not None
    settings = load_settings(variables(shared, own=()))
    assert {name: getattr(settings, name) for name in SHARED} == {
        name: getattr(STACK, name) for name in SHARED
    }


def test_secrets_and_settings_of_one_machine_are_not_shared() -> None:
    shared = handed_on()
    assert shared is not None
    assert not {name for name in shared if "nats_" in name} - {"nats_replicas"}
    assert "web_port" not in shared


def test_an_agent_s_own_settings_win_over_the_stack_s() -> None:
    shared = handed_on()
    assert shared is not None
    environ = {"HOPYARD_SPEED": "1"}
    settings = load_settings(environ | variables(shared, own=sources_of(environ)))
    assert (settings.speed, settings.clock_origin) == (1.0, 1234.0625)


def test_only_admission_speaks_for_the_stack() -> None:
    assert handed_on("planner") is None


def test_an_announcement_that_stands_is_not_written_again() -> None:
    """So a NATS that stores nothing, on a full disk, keeps admission from starting no longer."""

    async def main() -> list[int]:
        bus, revisions = MemoryBus(LoopClock()), []
        for settings in (STACK, STACK, replace(STACK, speed=1.0)):
            await announce(bus, "admission", settings)
            found = await bus.get(KEY)
            assert found is not None
            revisions.append(found[1])
        return revisions

    first, again, changed = run(main)
    assert first == again < changed
