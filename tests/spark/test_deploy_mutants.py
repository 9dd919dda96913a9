"""Deliberate faults in gateway, landing, derivations and SQL streams: each is found by the oracles that its row names.

`make mutants` runs all of this module and prints the table; `make test` runs most of it. Each fault is found by at least one
oracle that shares no code with the writer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.ledger import Derived
from tests.support.mutants import (
    DERIVED,
    LANDED,
    MUTANTS,
    StreamScene,
    World,
    audit_finds,
    copy_tables,
    devices_find,
    land,
    ledger_book_finds,
    ledger_finds,
    recomputation_finds,
)
from tests.support.mutants_gateway import GATEWAY, Mutant
from tests.support.mutants_stream import (
    BATCHES,
    DERIVATION,
    STREAM_NAMES,
    STREAMS,
    WRITES,
    break_writes,
)

pytestmark = pytest.mark.promise("P1")


def judge(mutant: Mutant, found: dict[str, list[str]], results: list[Any]) -> None:
    """Hold what the oracles found against the mutant's row."""
    results.append((mutant, found))
    for name in {"audit", "ledger"} & found.keys():  # of a stream neither is asked: they read no stream's table
        wanted = getattr(mutant, name)
        assert bool(found[name]) == wanted, f"{name} must {'' if wanted else 'not '}find it: {found}"
    independent = [name for name, faults in found.items() if faults and name != "ledger"]
    assert independent, f"no oracle that shares no code with the writer finds it: {found}"


def every_second(mutants: Sequence[Mutant]) -> list[Any]:
    """Each costs a landing of its own: `make test` tries every second, `make mutants` and `make chaos` all."""
    long = [pytest.param(mutant, marks=pytest.mark.chaos) for mutant in mutants[1::2]]
    return [*mutants[::2], *long]


def label(mutant: Mutant) -> str:
    return f"{mutant.hop}: {mutant.name}"


def examine(world: World, derived: Derived) -> dict[str, list[str]]:
    """What the three oracles of the landed tables and the ledger find."""
    return {
        "audit": audit_finds(world, derived),
        "ledger": ledger_finds(world, derived),
        "devices": devices_find(world, derived.root),
    }


def test_each_hop_has_faults_and_each_fault_a_name_of_its_own() -> None:
    mutants = [*GATEWAY, *WRITES, *BATCHES, *DERIVATION, *STREAMS]
    assert len({label(mutant) for mutant in mutants}) == len(mutants) >= 50
    assert {mutant.hop for mutant in mutants} == {"gateway", "landing", "derivation", "maintenance", "sql"}
    assert sum(mutant.audit for mutant in mutants) >= 25
    assert sum(mutant.ledger for mutant in mutants) >= 20
    assert len(STREAM_NAMES) == len(STREAMS)


@dataclass(frozen=True)
class Broken:
    """Worlds that share one landing, by the mutant's place; the first is sound."""

    worlds: list[World]
    derived: Derived


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> list[Any]:
    """What came out, for the table that `make mutants` prints."""
    found: list[Any] = request.config.stash.setdefault(MUTANTS, [])
    return found


@pytest.fixture(scope="module")
def broken(new_lander: Any, tmp_path_factory: Any, mutant_minute: int) -> Broken:
    """All faults of gateways and of written rows at once, each in a world of its own."""
    folder = tmp_path_factory.mktemp("broken")
    lander = new_lander(folder.name, folder)
    worlds = [World("sound", mutant_minute)]
    worlds += [World(f"g{place}", mutant_minute, mutant.breaks()) for place, mutant in enumerate(GATEWAY)]
    worlds += [World(f"w{place}", mutant_minute) for place, _ in enumerate(WRITES)]
    with pytest.MonkeyPatch.context() as monkeypatch:
        break_writes(monkeypatch, [(*mutant.breaks, f"w{place}") for place, mutant in enumerate(WRITES)])
        land(lander, worlds, monkeypatch)
    derived = Derived(lander)
    derived.settle()
    return Broken(worlds, derived)


def test_a_sound_pipeline_next_to_broken_ones_is_found_sound(broken: Broken) -> None:
    found = examine(broken.worlds[0], broken.derived)
    assert not any(found.values()), found
    assert ledger_book_finds(broken.worlds[0], broken.derived) == []


@pytest.mark.parametrize("mutant", [*GATEWAY, *WRITES], ids=label)
def test_a_fault_of_a_gateway_or_of_written_rows_is_found(mutant: Mutant, broken: Broken, results: list[Any]) -> None:
    world = broken.worlds[1 + [*GATEWAY, *WRITES].index(mutant)]
    judge(mutant, examine(world, broken.derived), results)


@pytest.mark.parametrize("mutant", every_second(BATCHES), ids=label)
def test_a_fault_of_a_batch_is_found(
    mutant: Mutant, lander: Any, mutant_minute: int, monkeypatch: pytest.MonkeyPatch, results: list[Any]
) -> None:
    world = World("x", mutant_minute)
    mutant.breaks(monkeypatch)
    land(lander, [world], monkeypatch)
    monkeypatch.undo()
    derived = Derived(lander)
    derived.settle()
    judge(mutant, examine(world, derived), results)


@pytest.fixture(scope="module")
def sound(new_lander: Any, tmp_path_factory: Any, mutant_minute: int) -> tuple[World, Any, Path]:
    """A sound world, its lander, and the landed tables after the first phase."""
    folder = tmp_path_factory.mktemp("sound")
    world, lander, first = World("x", mutant_minute), new_lander(folder.name, folder), folder / "first"

    def keep(phase: int) -> None:
        if not phase:
            copy_tables(lander.root, str(first), LANDED)

    with pytest.MonkeyPatch.context() as monkeypatch:
        land(lander, [world], monkeypatch, keep)
    return world, lander, first


@pytest.mark.parametrize("mutant", every_second(DERIVATION), ids=label)
def test_a_fault_behind_the_tables_is_found(
    mutant: Mutant, sound: tuple[World, Any, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: Any
) -> None:
    from lakehouse.create import ensure_tables
    from lakehouse.derived_tables import ALL_TABLES
    from streaming.derive.rollups import RollupDerivation
    from streaming.maintain.table_maintainer import TableMaintainer

    world, lander, first = sound
    root = str(tmp_path / "the tables")
    copy_tables(str(first), root, LANDED)
    ensure_tables(root, ALL_TABLES.values(), log_retention_hours=24)
    derived = Derived(lander, root)
    rollups = RollupDerivation(derived.writer)
    mutant.breaks(monkeypatch)
    for _ in range(2):
        if mutant.hop == "derivation":
            while rollups.run():
                pass
            derived.settle()
        copy_tables(lander.root, root, LANDED)
    if mutant.hop == "maintenance":
        TableMaintainer(derived.writer).run_all("readings", full=True)
        monkeypatch.undo()
        derived.settle()
    found = {
        "audit": audit_finds(world, derived),
        "ledger": ledger_finds(world, derived),
        "devices": ledger_book_finds(world, derived),
    }
    if mutant.hop == "derivation":
        found["recomputation"] = recomputation_finds(root, DERIVED)
    judge(mutant, found, results)


@pytest.fixture(scope="module")
def streamed(new_lander: Any, tmp_path_factory: Any, mutant_minute: int, wait_until: Any) -> dict[str, list[str]]:
    """What the devices' book says of each stream's table and topic; `sound` is a stream without a fault."""
    folder = tmp_path_factory.mktemp("streamed")
    world, scene = World("x", mutant_minute), StreamScene(new_lander(folder.name, folder), wait_until)
    with pytest.MonkeyPatch.context() as monkeypatch:
        for mutant in STREAMS:
            mutant.breaks(monkeypatch)
        try:
            for phase in range(2):
                world.receive(phase, monkeypatch)
                world.send(scene.lander)
                for name in (*STREAM_NAMES, "sound") if not phase else ():
                    scene.apply(name)
                scene.until_read(*STREAM_NAMES, "sound")
        finally:
            scene.streams.close()
    return {name: scene.finds(world, name) for name in (*STREAM_NAMES, "sound")}


def test_a_sound_stream_next_to_broken_ones_is_found_sound(streamed: dict[str, list[str]]) -> None:
    assert streamed["sound"] == []


@pytest.mark.parametrize("mutant", STREAMS, ids=label)
def test_a_fault_of_a_stream_is_found(mutant: Mutant, streamed: dict[str, list[str]], results: list[Any]) -> None:
    faults = streamed[STREAM_NAMES[STREAMS.index(mutant)]]
    judge(mutant, {"devices": faults}, results)
