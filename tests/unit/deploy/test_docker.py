"""The image: the packages it installs, the jars it leaves out, its health check, and the names that its files share."""

import http.server
import re
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from deploy.docker import healthz, slim
from deploy.export.compose_servers import GROUP
from deploy.export.compose_settings import STATE
from deploy.local.artifacts import read_lock, spark_jars
from monitoring.monitoring_settings import MonitoringSettings

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "deploy" / "docker"
TOOLS = ("pip", "setuptools", "wheel", "hatchling")


def site_packages() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parents[1]


def closure(wanted: list[str]) -> set[str]:
    """Names of these requirements and of all that they require here, without extras."""
    found: set[str] = set()
    while wanted:
        requirement = Requirement(wanted.pop())
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            wanted += requires(name) or []
    return found


def test_the_image_installs_what_the_project_requires_and_no_more() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    listed = (DOCKER / "packages.txt").read_text("utf-8").split()
    assert sorted(listed) == listed
    wanted = closure(list(project["dependencies"]))
    assert set(listed) == wanted, f"write these names into deploy/docker/packages.txt: {sorted(wanted)}"


def test_all_that_the_image_installs_is_pinned_with_hashes() -> None:
    pinned = set(
        re.findall(r"^([a-z0-9-]+)==\S+.*\\\n    --hash=", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    )
    assert set((DOCKER / "packages.txt").read_text("utf-8").split()) <= pinned
    dockerfile = (DOCKER / "Dockerfile").read_text("utf-8")
    printed = re.search(r"printf '%s\\n' ([a-z -]+) > tools.txt", dockerfile)
    assert printed is not None
    assert set(printed[1].split()) == closure(list(TOOLS))
    assert set(printed[1].split()) <= pinned


def test_what_is_left_out_is_in_this_version_and_saves_a_third_of_pyspark() -> None:
    packages = site_packages()
    families = slim.read_left_out()
    assert {family.name for family in families} >= {
        "connect",
        "hive",
        "kubernetes",
        "machine-learning",
        "shell",
        "yarn",
    }
    jars = 0
    for family in families:
        assert family.reason.endswith(".")
        for path in slim.find_left_out(packages, family):
            files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
            jars += sum(file.stat().st_size for file in files if "jars" in file.parts)
    assert jars > 160_000_000
    for glob, kept in slim.read_natives().items():
        (jar,) = packages.glob(glob)
        names = zipfile.ZipFile(jar).namelist()
        assert all(any(re.fullmatch(pattern.replace("*", ".*"), name) for name in names) for pattern in kept)


def test_no_class_that_stays_names_a_class_that_is_left_out() -> None:
    """A class that is missing shows only when it is first used, which may be after months."""
    packages = site_packages()
    gone = {path for family in slim.read_left_out() for path in slim.find_left_out(packages, family)}
    left_out = {each.encode(): family.name for family in slim.read_left_out() for each in family.packages}
    names = ("spark-sql_*", "spark-catalyst_*", "spark-core_*", "spark-kvstore_*", "spark-network-*")
    jars = [jar for name in names for jar in packages.glob(f"pyspark/jars/{name}.jar")]
    assert not gone & set(jars)
    jars += [jar for jar in spark_jars() if jar.name.startswith(("delta-", "spark-"))]
    found: set[tuple[str, str, str]] = set()
    for jar in jars:
        with zipfile.ZipFile(jar) as opened:
            for entry in opened.namelist():
                if entry.endswith(".class"):
                    content = opened.read(entry)
                    found |= {(jar.name, entry, left_out[each]) for each in left_out if each in content}
    assert found == set()


def test_no_library_that_stays_needs_a_library_that_is_left_out() -> None:
    packages = site_packages()
    gone = {path for family in slim.read_left_out() for path in slim.find_left_out(packages, family)}
    libraries = {path.name.encode() for path in gone if path.name.startswith("lib") and ".so" in path.name}
    assert b"libarrow_flight.so.2600" in libraries
    kept = [path for path in packages.glob("pyarrow/*.so*") if path not in gone]
    found = {(path.name, name) for path in kept for name in libraries if name in path.read_bytes()}
    assert found == set()


def test_slimming_removes_files_folders_and_foreign_native_code(tmp_path: Path) -> None:
    for family in slim.read_left_out():
        for glob in family.files:
            path = tmp_path / glob.replace("*", "1")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * 100)
    folder = tmp_path / "pyspark" / "jars" / "connect-repl"
    folder.unlink()
    folder.mkdir()
    (folder / "a.jar").write_bytes(b"x" * 100)
    for glob in slim.read_natives():
        with zipfile.ZipFile(tmp_path / glob.replace("*", "1"), "w") as jar:
            for name in ("a.class", "librocksdbjni-linux64.so", "librocksdbjni-win64.dll", "linux/amd64/z.so"):
                jar.writestr(name, b"y" * 1000)
    kept = tmp_path / "pyspark" / "jars" / "hive-storage-api-1.jar"
    kept.write_bytes(b"z")

    assert slim.main([str(tmp_path)]) == 0
    left = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file())
    assert left == [
        "pyspark/jars/hive-storage-api-1.jar",
        "pyspark/jars/rocksdbjni-1.jar",
        "pyspark/jars/zstd-jni-1.jar",
    ]
    assert zipfile.ZipFile(tmp_path / left[1]).namelist() == ["a.class", "librocksdbjni-linux64.so"]
    assert zipfile.ZipFile(tmp_path / left[2]).namelist() == ["a.class", "linux/amd64/z.so"]
    assert slim.main([str(tmp_path)]) == 1, "what is not there shows that the list is of another version"
    assert slim.main([]) == 2


@pytest.fixture
def answering() -> Iterator[tuple[int, list[int]]]:
    """A port with a `/healthz`, and a list that holds its next status."""
    status = [200]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/healthz"
            self.send_response(status[0])
            self.end_headers()
            self.wfile.write(b"connected\n")

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1], status
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_health_check_passes_the_parts_answer_on(
    answering: tuple[int, list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    port, status = answering
    assert healthz.main(["gateway", str(port)]) == 0
    assert capsys.readouterr().out == "connected\n"
    status[0] = 503
    assert healthz.main(["gateway", str(port)]) == 1
    assert healthz.main(["gateway", "1"]) == 1
    assert "No answer on port 1" in capsys.readouterr().out
    assert healthz.main(["broker"]) == 2


def test_the_health_check_finds_the_part_of_its_container(
    answering: tuple[int, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, _ = answering
    monkeypatch.setitem(healthz.PORTS, "stream", port)
    first = tmp_path / "cmdline"
    first.write_bytes(
        b"/sbin/docker-init\0--\0/opt/tidegate/bin/python\0/opt/tidegate/bin/tidegate\0stream\0--config\0x\0"
    )
    assert healthz.main([], first_process=first) == 0
    first.write_bytes(b"tidegate\0sql\0select 1\0")
    assert healthz.main([], first_process=first) == 0


def test_names_that_several_files_share_are_the_same() -> None:
    defaults = MonitoringSettings()
    ports = {name: getattr(defaults, f"{name}_port") for name in ("gateway", "stream", "canary")}
    assert {**ports, "monitor": defaults.page_port} == healthz.PORTS
    dockerfile = (DOCKER / "Dockerfile").read_text("utf-8")
    assert f"USER {GROUP}:{GROUP}\n" in dockerfile
    assert f"WORKDIR {STATE}\n" in dockerfile
    assert re.findall(r"^EXPOSE (.*)$", dockerfile, re.MULTILINE) == [
        " ".join(map(str, sorted(healthz.PORTS.values())))
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"ARG VERSION={project['version']}\n" in dockerfile
    assert f"IMAGE ?= tidegate:{project['version']}\n" in (ROOT / "Makefile").read_text("utf-8")
    assert {jar.part for jar in read_lock()} >= {"spark", "jmx"}


def test_the_build_gets_each_file_that_it_copies_and_no_data() -> None:
    rules = [
        line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line and not line.startswith("#")
    ]
    allowed = {line[1:] for line in rules if line.startswith("!")}
    assert rules[0] == "*"
    dockerfile = (DOCKER / "Dockerfile").read_text("utf-8")
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE):
        for source in sources.split():
            assert source == "." or (source.split("/")[0] in allowed and (ROOT / source).is_file()), source
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert allowed >= packages | {"pyproject.toml", "constraints.txt", project["project"]["readme"]}
    assert all((ROOT / name).exists() for name in allowed)
