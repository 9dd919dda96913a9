"""A power cut as it is on a disk that was not synced: the newest files are not torn, they are not there, in any combination."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ingest.contract.errors import FatalError
from lakehouse.derived_tables import ALL_TABLES
from streaming.derive.cursor import encode_cursor

PLACES = ("offsets", "commits", "readings", "dead_letters", "duplicates")
SUBSETS = [
    (),
    *((place,) for place in PLACES),
    ("offsets", "commits"),
    ("offsets", "commits", "readings"),
    ("commits", "dead_letters"),
    PLACES,
]
"""Each alone, and what belongs together: tests/unit/streaming/test_vanished.py tries the rules in more combinations."""
FIRST_SUBSETS = [(), ("readings",), ("dead_letters",), ("offsets", "commits"), PLACES]
"""One of each outcome: nothing to do, a refusal for each table, a batch that is landed again, and all at once."""


def newest_of(folder: Path) -> list[Path]:
    """The newest numbered file of a checkpoint's folder or of a log, with its checksum."""
    numbers = [path for path in folder.iterdir() if path.name.split(".")[0].isdigit() and "checkpoint" not in path.name]
    newest = max(numbers, key=lambda path: int(path.name.split(".")[0]))
    return [newest, newest.with_name(f".{newest.name}.crc"), newest.with_suffix(".crc")]


def lose(lander: Any, places: Iterable[str]) -> None:
    """The newest file of each of these places was never written to the disk; a data file that nobody names stays."""
    for place in places:
        folder = lander.checkpoint / place if place in PLACES[:2] else Path(lander.root) / place / "_delta_log"
        for path in newest_of(folder):
            path.unlink(missing_ok=True)
    lander.lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def numbers(lander: Any, table: str) -> list[int]:
    return sorted(row["message_number"] for row in lander.rows(table))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "subsets", [pytest.param(FIRST_SUBSETS, id="first"), pytest.param(SUBSETS, id="all", marks=pytest.mark.chaos)]
)
def test_whatever_newest_files_a_power_cut_takes_each_record_is_landed_once(
    lander: Any, record: Any, dead_letter: Any, subsets: list[tuple[str, ...]]
) -> None:
    """Rows with and without identity, letters and copies in one batch; some of the newest files gone, in turn."""
    refused, number = dict[tuple[str, ...], str](), 0
    lander.land(record(0, seq=1))
    stored, letters = [0, 0], list[int]()
    for subset in subsets:
        number += 10
        plain, named, copy, letter = (number + i for i in range(4))
        lander.land(record(plain), record(named, seq=named), record(copy, seq=1), dead_letter(letter))
        lander.land(record(number + 4, seq=number + 4), record(number + 5), dead_letter(number + 6), record(0, seq=1))
        stored += [n for n in (plain, named, number + 4, number + 5) for _ in range(2)]
        letters += [letter, number + 6]
        lose(lander, subset)
        lander.send(record(number + 7))
        stored += [number + 7, number + 7]
        try:
            lander.land()
        except FatalError as error:
            assert "tidegate repair" in str(error), subset
            refused[subset] = str(error)
            assert lander.repair(), subset
            lander.land()
        assert numbers(lander, "readings") == sorted(stored), subset
        assert [n for n in numbers(lander, "dead_letters") if n in letters] == sorted(letters), subset
    # What leaves no trace anywhere needs no person; what was promised and is gone is said.
    assert () not in refused
    assert ("offsets", "commits") not in refused
    assert "the table readings is at version" in refused["readings",]
    assert "the table dead_letters is at version" in refused["dead_letters",]


def test_identities_of_rows_that_are_gone_are_forgotten_and_what_was_derived_from_them_is_made_again(
    lander: Any, record: Any
) -> None:
    lander.land(record(1, seq=1))
    lander.land(record(2, seq=2), record(3))
    derived = ALL_TABLES["latest"]
    version = lander.versions()["readings"]
    from lakehouse.append import Appender

    with Appender(lander.lake.spark, lander.root, derived).begin() as append:
        append.commit(encode_cursor({"readings": version}))
    # All that knows of the batch is gone but the file of identities, which was saved at the stop, and the derived table.
    lose(lander, ("offsets", "commits", "readings"))
    with pytest.raises(FatalError, match=f"latest read version {version} of readings"):
        lander.start()
    lander.repair()
    lander.land()
    assert numbers(lander, "readings") == [1, 1, 2, 2, 3, 3]


def test_a_batchs_data_is_on_the_disk_before_its_commit_and_its_commit_before_the_checkpoint(
    lander: Any, record: Any, dead_letter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[tuple[list[str], bool, bool]]()

    def note(folder: Path, names: Iterable[str]) -> None:
        listed = list(names)
        commit = folder / "_delta_log" / f"{1:020d}.json"
        synced.append((listed, commit.exists(), (lander.checkpoint / "commits" / "0").exists()))

    monkeypatch.setattr("lakehouse.append.sync_files", note)
    lander.land(record(1), dead_letter(2))
    data, commits = synced[::2], synced[1::2]
    assert len(data) == len(commits) == 2
    assert all(names and not committed and not done for names, committed, done in data)
    assert all(names == [f"_delta_log/{1:020d}.json"] and committed and not done for names, committed, done in commits)
