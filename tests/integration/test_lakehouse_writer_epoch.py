"""Writer epochs in the logs of tables on a real S3 server: who takes the tables over, and in which order."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, PyFileSystem

from deploy.doctor.place_checks import check_places
from deploy.settings import Settings
from ingest.contract.errors import UnavailableError
from lakehouse.create import ensure_tables
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.lake_settings import LakeSettings
from lakehouse.object_store import use_s3
from lakehouse.tables import TABLES
from lakehouse.writer_epoch import WRITER, CommitConflictError, FencedError, fence_of, take_tables
from tests.support.bucket import Bucket, FaultyConnection


@pytest.fixture
def root(bucket: Bucket, request: pytest.FixtureRequest) -> str:
    lake = bucket.lake(request.node.name)
    use_s3(lake)
    ensure_tables(lake.root, TABLES.values(), log_retention_hours=24)
    return lake.root


def epochs(root: str) -> dict[str, int | None]:
    return {name: DeltaTable(f"{root}/{name}").transaction_version(WRITER) for name in TABLES}


def commit(uri: str) -> int:
    """A commit of some writer, with the retries that delta-rs has by itself."""
    table = DeltaTable(uri)
    table.create_write_transaction([], "append", table.schema(), partition_by=["date"])
    return int(DeltaTable(uri).version())


def test_each_start_takes_the_next_epoch_in_each_table(root: str) -> None:
    with take_tables(root, TABLES) as first:
        assert (first, epochs(root)) == (1, dict.fromkeys(TABLES, 1))
        fence = fence_of(f"{root}/readings")
        assert fence is not None
        assert (fence.epoch, fence.version) == (1, DeltaTable(f"{root}/readings").version())
    assert fence_of(f"{root}/readings") is None
    with take_tables(root, TABLES) as second:
        assert (second, epochs(root)) == (2, dict.fromkeys(TABLES, 2))


def test_the_epoch_survives_a_checkpoint_of_the_log(root: str) -> None:
    with take_tables(root, TABLES):
        DeltaTable(f"{root}/readings").create_checkpoint()
    with take_tables(root, ["readings"]) as second:
        assert second == 2


def test_an_older_writer_finds_out_at_its_next_commit(root: str) -> None:
    uri = f"{root}/readings"
    with take_tables(root, TABLES):
        old = fence_of(uri)
        assert old is not None
        old.check(DeltaTable(uri).version())
        with take_tables(root, TABLES):
            with pytest.raises(FencedError, match="writer epoch 2, this one has 1") as caught:
                old.check(DeltaTable(uri).version())
            assert caught.value.exit_code == 78


def test_a_conflict_without_a_newer_epoch_ends_the_writer_but_not_for_good(root: str) -> None:
    """So looks the own put that a store took twice: the next start goes on from the log."""
    uri = f"{root}/readings"
    with take_tables(root, TABLES):
        fence = fence_of(uri)
        assert fence is not None
        newest = commit(uri)
        with pytest.raises(CommitConflictError, match="Nothing is lost") as caught:
            fence.check(newest)
        assert type(caught.value) is CommitConflictError
        assert caught.value.exit_code == 1


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]) -> None:
    """Call `act` with a count between each writer's look at a table and its put."""
    real, calls = DeltaTable.create_write_transaction, iter(range(1000))

    def later(self: DeltaTable, *given: Any, commit_properties: CommitProperties | None = None, **more: Any) -> None:
        if commit_properties is not None:
            act(next(calls))
        real(self, *given, commit_properties=commit_properties, **more)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", later)


def test_commits_of_the_living_writer_do_not_keep_the_next_one_out(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"{root}/readings"
    meanwhile(monkeypatch, lambda count: commit(uri) if count < 3 else None)
    with take_tables(root, TABLES) as epoch:
        fence = fence_of(uri)
        assert epoch == 1
        assert fence is not None
        assert fence.version == DeltaTable(uri).version() == 4


def test_of_two_starts_at_once_one_gets_all_tables(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one takes all tables between the first one's look at the first table and its put there."""
    won: list[int] = []

    def start(count: int) -> None:
        if count == 0:
            with take_tables(root, TABLES) as epoch:
                won.append(epoch)

    meanwhile(monkeypatch, start)
    with take_tables(root, TABLES) as epoch:
        assert (won, epoch, epochs(root)) == ([1], 2, dict.fromkeys(TABLES, 2))


def test_a_start_that_is_overtaken_after_its_first_table_ends(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(count: int) -> None:
        if count == 1:
            with take_tables(root, TABLES):
                pass

    meanwhile(monkeypatch, start)
    with pytest.raises(FencedError, match="writer epoch 2, this one has 1"), take_tables(root, TABLES):
        pytest.fail("it took them")
    assert epochs(root) == dict.fromkeys(TABLES, 2)


@pytest.fixture
def line(root: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyConnection]:
    """A faulty connection, which delta-rs uses from now on."""
    connection = FaultyConnection(bucket)
    monkeypatch.setenv("AWS_ENDPOINT_URL", connection.endpoint)
    yield connection
    connection.close()


@pytest.mark.parametrize(("lost_at", "epoch"), [(0, 2), (1, 1), (len(TABLES) - 1, 1)])
def test_a_lost_answer_to_a_start_does_not_look_like_another_writer(
    root: str, line: FaultyConnection, lost_at: int, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """delta-rs puts again, and hears that the version exists. In the first table the start takes the next epoch."""
    meanwhile(monkeypatch, lambda count: setattr(line, "lose_next", count == lost_at))
    with take_tables(root, TABLES) as taken:
        assert line.lost == 1
        assert (taken, epochs(root)) == (epoch, dict.fromkeys(TABLES, epoch))
        for name in TABLES:
            fence = fence_of(f"{root}/{name}")
            assert fence is not None
            fence.check(DeltaTable(f"{root}/{name}").version())


def test_tables_change_only_after_they_are_taken(root: str) -> None:
    """So a writer whose commit meets an alteration finds the epoch, and does not start again to take the tables back."""
    seen: list[type[CommitConflictError]] = []

    def alter() -> None:
        commit(uri)
        assert old is not None
        seen.append(type(old.conflict()))
        ensure_tables(root, ALL_TABLES.values(), log_retention_hours=48)

    uri = f"{root}/readings"
    with take_tables(root, TABLES):
        old = fence_of(uri)
        with take_tables(root, ALL_TABLES, alter) as epoch:
            assert (epoch, seen) == (2, [FencedError])
            for name in ALL_TABLES:
                table, fence = DeltaTable(f"{root}/{name}"), fence_of(f"{root}/{name}")
                assert table.transaction_version(WRITER) == 2
                assert fence is not None
                assert (fence.epoch, fence.version) == (2, table.version())


def test_a_start_that_is_overtaken_while_it_alters_tables_ends(root: str) -> None:
    def alter() -> None:
        with take_tables(root, TABLES):
            pass

    with pytest.raises(FencedError, match="writer epoch 2, this one has 1"), take_tables(root, TABLES, alter):
        pytest.fail("it took them")


def test_a_start_that_never_gets_a_commit_in_says_so(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakehouse.writer_epoch.TRIES", 2)
    meanwhile(monkeypatch, lambda count: commit(f"{root}/readings"))
    with pytest.raises(UnavailableError, match="came in between 2 times"), take_tables(root, TABLES):
        pytest.fail("it took them")


def test_doctor_writes_to_the_bucket_and_leaves_nothing(bucket: Bucket) -> None:
    def of(lake: LakeSettings) -> tuple[str, str]:
        use_s3(lake)
        settings = Settings.model_validate({"lake": lake, "stream": {"checkpoint": f"{lake.root}/checkpoint"}})
        ((state, text),) = [(check.state, check.text) for check in check_places(settings) if check.name == "tables"]
        return state, text

    assert of(bucket.lake("doctor")) == (
        "ok",
        "s3a://lake/doctor is writable; the stream tests the store's conditional puts when it starts",
    )
    files = PyFileSystem(DeltaStorageHandler("s3a://lake/doctor"))
    assert [info.path for info in files.get_file_info(FileSelector("", recursive=True)) if info.is_file] == []
    state, text = of(bucket.lake("tables", "missing"))
    assert (state, text.startswith("cannot write to s3a://missing/tables")) == ("fail", True)
