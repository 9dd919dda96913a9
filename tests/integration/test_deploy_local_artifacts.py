"""Fetching the JVM parts with the real Ivy from a repository on this machine: whole, cut off, wrong, twice at once."""

import hashlib
import http.server
import multiprocessing
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import artifacts, maven
from ingest.contract.errors import UnavailableError


class Repository:
    """A Maven repository of made-up jars; `served` are the requests, `broken` names answer 404."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.served: list[str] = []
        self.broken: set[str] = set()
        outer = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *args: object) -> None:
                super().__init__(*args, directory=str(folder))  # type: ignore[arg-type]

            def do_GET(self) -> None:
                outer.served.append(self.path)
                if any(name in self.path for name in outer.broken):
                    self.send_error(404)
                else:
                    super().do_GET()

            def log_message(self, *args: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def put(self, name: str, content: bytes) -> None:
        path = self.folder / "org" / "example" / name / "1.0" / f"{name}-1.0.jar"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def downloads(self, name: str) -> int:
        return sum(path.endswith(f"{name}-1.0.jar") for path in self.served)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    repository = Repository(tmp_path / "repository")
    threading.Thread(target=repository.server.serve_forever, daemon=True).start()
    monkeypatch.setenv(maven.MIRROR_VARIABLE, repository.url)
    yield repository
    repository.server.shutdown()
    repository.server.server_close()


@pytest.fixture
def lock(tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three jars, each needed by another part."""
    file, lines = tmp_path / "jars.lock", ["# a comment", ""]
    for part, name in [("both", "one"), ("spark", "two"), ("kafka", "three")]:
        content = name.encode() * 1000
        repository.put(name, content)
        source = tmp_path / name
        source.write_bytes(content)
        lines.append(f"{part:5} org.example:{name}:1.0 {len(content)} {artifacts._sha256(source)}")
    file.write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(artifacts, "LOCK_FILE", file)
    monkeypatch.setattr(artifacts.read_lock, "__defaults__", (file,))
    return file


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "a cache with spaces"


def names(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir() if not path.name.startswith(".")}


def quiet(_text: str) -> None: ...


@pytest.mark.usefixtures("lock")
def test_a_group_is_fetched_once_and_then_found_offline(repository: Repository, cache: Path) -> None:
    told: list[str] = []
    artifacts.fetch_jars("spark", told.append, cache=cache)
    assert names(cache) == {"one-1.0.jar", "two-1.0.jar"}
    assert told[0] == "JVM parts: fetching 2, 0.0 MB"
    repository.server.shutdown()
    artifacts.fetch_jars("spark", told.append, cache=cache)
    assert [path.name for path in artifacts.spark_jars(cache)] == ["one-1.0.jar", "two-1.0.jar"]


@pytest.mark.usefixtures("lock")
def test_only_what_is_missing_is_fetched(repository: Repository, cache: Path) -> None:
    artifacts.fetch_jars("spark", quiet, cache=cache)
    artifacts.fetch_jars("all", quiet, cache=cache)
    assert names(cache) == {"one-1.0.jar", "two-1.0.jar", "three-1.0.jar"}
    assert [repository.downloads(name) for name in ("one", "two", "three")] == [1, 1, 1]


@pytest.mark.usefixtures("lock")
def test_a_missing_part_is_one_sentence_and_the_rest_is_kept_for_the_next_run(
    repository: Repository, cache: Path
) -> None:
    repository.broken = {"two"}
    with pytest.raises(UnavailableError) as error:
        artifacts.fetch_jars("all", quiet, cache=cache)
    assert "The JVM part org.example:two:1.0 could not be fetched from Maven" in str(error.value)
    assert maven.MIRROR_VARIABLE in str(error.value)
    assert error.value.exit_code == 69
    repository.broken = set()
    artifacts.fetch_jars("all", quiet, cache=cache)
    assert names(cache) == {"one-1.0.jar", "two-1.0.jar", "three-1.0.jar"}
    assert repository.downloads("one") == 1


@pytest.fixture
def with_agent(lock: Path, repository: Repository) -> None:
    """The JMX agent among them, which the pipeline runs without."""
    content = b"agent" * 1000
    repository.put("agent", content)
    digest = hashlib.sha256(content).hexdigest()
    lock.write_text(f"{lock.read_text()}\njmx org.example:agent:1.0 {len(content)} {digest}", encoding="utf-8")


@pytest.mark.usefixtures("with_agent")
def test_the_agent_comes_with_all_the_rest(cache: Path) -> None:
    artifacts.fetch_jars("all", quiet, cache=cache)
    assert names(cache) == {"one-1.0.jar", "two-1.0.jar", "three-1.0.jar", "agent-1.0.jar"}
    assert artifacts.jmx_agent(cache).is_file()


@pytest.mark.usefixtures("with_agent")
@pytest.mark.parametrize("first", [False, True])
def test_without_the_agent_all_goes_on(first: bool, repository: Repository, cache: Path) -> None:
    """Where it is the only one missing, as after an update without a network, or where nothing is there yet."""
    if not first:
        artifacts.fetch_jars("spark", quiet, cache=cache)
        artifacts.fetch_jars("kafka", quiet, cache=cache)
    repository.broken = {"agent"}
    told: list[str] = []
    artifacts.fetch_jars("all", told.append, cache=cache)
    assert told[-1].startswith("Kafka and Spark run without metrics of their JVMs: The JVM part org.example:agent:1.0")
    assert names(cache) == {"one-1.0.jar", "two-1.0.jar", "three-1.0.jar"}
    repository.broken = set()
    artifacts.fetch_jars("all", told.append, cache=cache)
    assert artifacts.jmx_agent(cache).is_file()


@pytest.mark.usefixtures("with_agent")
def test_a_part_that_is_needed_stays_needed_beside_the_agent(repository: Repository, cache: Path) -> None:
    repository.broken = {"agent", "two"}
    with pytest.raises(UnavailableError, match=r"org\.example:two:1\.0"):
        artifacts.fetch_jars("all", quiet, cache=cache)


@pytest.mark.usefixtures("lock")
def test_a_wrong_hash_is_one_sentence_and_never_in_the_cache(repository: Repository, cache: Path) -> None:
    repository.put("two", b"changed on its way")
    with pytest.raises(UnavailableError) as error:
        artifacts.fetch_jars("spark", quiet, cache=cache)
    assert "org.example:two:1.0 has the sha256" in str(error.value)
    assert "the download was deleted" in str(error.value)
    assert "two-1.0.jar" not in names(cache)
    repository.put("two", b"two" * 1000)
    artifacts.fetch_jars("spark", quiet, cache=cache)
    assert names(cache) == {"one-1.0.jar", "two-1.0.jar"}


@pytest.mark.usefixtures("lock", "repository")
def test_a_cut_or_changed_file_is_found(cache: Path) -> None:
    artifacts.fetch_jars("spark", quiet, cache=cache)
    (cache / "one-1.0.jar").write_bytes(b"cut")
    artifacts.fetch_jars("spark", quiet, cache=cache)
    assert (cache / "one-1.0.jar").read_bytes() == b"one" * 1000
    (cache / "one-1.0.jar").write_bytes(b"ONE" * 1000)
    artifacts.fetch_jars("spark", quiet, cache=cache)
    told: list[str] = []
    artifacts.fetch_jars("spark", told.append, cache=cache, verify=True)
    assert (cache / "one-1.0.jar").read_bytes() == b"one" * 1000
    assert any("org.example:one:1.0" in text and "damaged" in text for text in told)


@pytest.mark.usefixtures("lock")
def test_two_runs_at_once_fetch_once(repository: Repository, cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=artifacts.fetch_jars, args=("all", quiet), kwargs={"cache": cache}) for _ in "ab"
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert [repository.downloads(name) for name in ("one", "two", "three")] == [1, 1, 1]


def test_a_part_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"delta-spark_4\.2_2\.13:4\.4\.0|kafka-clients:4\.3\.1.*make setup"):
        artifacts.spark_jars(tmp_path)
