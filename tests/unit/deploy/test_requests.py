"""Who runs a request: the writer that holds the lock, else this process."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy import requests
from deploy.requests import run_request
from deploy.settings import Settings, load_settings
from ingest.contract.errors import ConfigError, RetryableError, TidegateError, UnavailableError
from lakehouse.lock import WriterLock, is_held
from lakehouse.requests import TRIES, Request, await_answer, pending_requests, run_pending, submit_request


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(overrides={"lake.root": str(tmp_path / "tables")}, environ={})


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Request]]:
    """What was run in this process, with a handler that needs no Spark."""
    ran: list[Request] = []

    def run_here(settings: Any, tell: Any, run: Any) -> Any:
        return run(lambda request: ran.append(request) or {"by": "this process"})

    monkeypatch.setattr(requests, "_run_here", run_here)
    return ran


def test_where_nobody_writes_it_is_run_here(settings: Settings, here: list[Request]) -> None:
    request = Request("maintain", {})
    assert run_request(settings, request) == {"by": "this process"}
    assert here == [request]


def test_a_writer_is_asked_and_its_refusal_is_the_answer(settings: Settings, here: list[Request]) -> None:
    root = settings.lake.root
    lock, stop = WriterLock(Path(root), what="tables"), threading.Event()

    def answer(request: Request) -> dict[str, Any]:
        if request.kind == "no":
            message = "not today"
            raise TidegateError(message)
        return {"by": "the writer"}

    def write() -> None:
        while not stop.wait(0.01):
            run_pending(root, answer)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert is_held(Path(root))
        assert run_request(settings, Request("maintain", {})) == {"by": "the writer"}
        with pytest.raises(TidegateError, match="not today"):
            run_request(settings, Request("no", {}))
    finally:
        stop.set()
        writer.join()
        lock.close()
    assert not is_held(Path(root))
    assert here == []


def test_a_writer_that_ends_before_it_answers_leaves_the_request_to_this_process(
    settings: Settings, here: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "LOOK_SECONDS", 0.0)
    lock = WriterLock(Path(settings.lake.root), what="tables")
    request = Request("maintain", {})

    def end() -> None:
        while not pending_requests(settings.lake.root):
            pass
        lock.close()

    ending = threading.Thread(target=end)
    ending.start()
    assert run_request(settings, request) == {"by": "this process"}
    ending.join()
    assert here == [request]
    assert pending_requests(settings.lake.root) == []


def test_a_busy_writer_keeps_the_request(settings: Settings, here: list[Request]) -> None:
    lock = WriterLock(Path(settings.lake.root), what="tables")
    request = Request("maintain", {})
    with pytest.raises(UnavailableError, match=request.id):
        run_request(settings, request, patience_seconds=0.0)
    lock.close()
    assert pending_requests(settings.lake.root) == [request]


def test_tables_in_an_object_store_take_no_requests(here: list[Request]) -> None:
    settings = load_settings(overrides={"lake.root": "s3://bucket/tables"}, environ={})
    with pytest.raises(UnavailableError, match="s3://bucket/tables"):
        run_request(settings, Request("maintain", {}))


def test_a_request_that_fails_unforeseen_keeps_no_other_waiting_and_is_given_up(tmp_path: Path) -> None:
    bad = submit_request(str(tmp_path), Request("bad", {}))
    for number in range(TRIES):
        good = submit_request(str(tmp_path), Request("good", {"number": number}))

        def run(request: Request) -> dict[str, Any]:
            if request.kind == "bad":
                message = "a bug"
                raise KeyError(message)
            return dict(request.arguments)

        with pytest.raises(KeyError):
            run_pending(str(tmp_path), run)
        assert await_answer(str(tmp_path), good, patience_seconds=0) == {"number": number}
    assert pending_requests(str(tmp_path)) == []
    with pytest.raises(TidegateError, match=r"too often.*a bug"):
        await_answer(str(tmp_path), bad, patience_seconds=0)


def test_a_request_under_which_spark_ends_is_begun_twice_over_all_processes(tmp_path: Path) -> None:
    """Each time in a new process: else no start of the stream would land again."""
    root, begun = str(tmp_path), list[str]()
    greedy = submit_request(root, Request("rewind", {}))

    def run(request: Request) -> dict[str, Any]:
        begun.append(request.id)
        message = "Answer from Java side is empty"
        raise ConnectionError(message)

    for _ in range(2):
        with pytest.raises(ConnectionError):
            run_pending(root, run, weigh=lambda: 3)
    assert run_pending(root, run, weigh=lambda: 3) == 0
    assert begun == [greedy.id] * 2
    with pytest.raises(TidegateError, match=r"too often and is not tried again.*Answer from Java side is empty"):
        await_answer(root, greedy, patience_seconds=0)
    assert [file.name for file in (tmp_path / "_requests").iterdir() if file.is_file()] == []


@pytest.mark.parametrize("error", [TidegateError("the query was cancelled"), OSError("cancelled")])
def test_a_request_whose_work_was_cancelled_by_a_stop_is_run_by_the_next_process(
    tmp_path: Path, error: Exception
) -> None:
    root, begun = str(tmp_path), list[str]()
    asked = [submit_request(root, Request("rewind", {"number": number})) for number in range(2)]

    def run(request: Request) -> dict[str, Any]:
        begun.append(request.id)
        raise error

    for _ in range(10):
        assert run_pending(root, run, weigh=lambda: 0) == 0
    assert begun == [asked[0].id] * 10, "the second one does not begin in a process that ends"
    assert run_pending(root, lambda request: dict(request.arguments)) == 2
    assert await_answer(root, asked[1], patience_seconds=0) == {"number": 1}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConfigError("no"), ConfigError),
        (RetryableError("later"), UnavailableError),
        (TidegateError("no"), TidegateError),
    ],
)
def test_a_refusal_by_the_writer_has_the_exit_code_that_it_has_here(
    tmp_path: Path, error: TidegateError, kind: type[TidegateError]
) -> None:
    asked = submit_request(str(tmp_path), Request("x", {}))

    def refuse(request: Request) -> dict[str, Any]:
        raise error

    run_pending(str(tmp_path), refuse)
    with pytest.raises(TidegateError) as found:
        await_answer(str(tmp_path), asked, patience_seconds=0)
    assert type(found.value) is kind
