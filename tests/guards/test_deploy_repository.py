"""Rules of the repository: what a wheel holds, what no tracked file says, where names and settings come from."""

import ast
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from deploy.bench.suite.report.benchmarks_file import BEGIN, END
from deploy.local.preflight import PACKAGES, find_foreign_packages
from deploy.settings import Settings
from gateway.decoders.mapping.settings import MappingSettings, QuantitySettings, TimeSource, ValueTimes, ValueUnits
from gateway.decoders.mapping.text_settings import FormatSettings
from gateway.decoders.mapping.value_settings import NumberSettings, QualitySettings, TimeOffset
from gateway.decoders.vendor_settings import VendorSettings
from gateway.gateway_settings import MqttLogin, RouteSettings
from gateway.profiles.model import MetricRules, Profile

ROOT = Path(__file__).parents[2]


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return done.stdout.splitlines()


def _tracked_texts() -> Iterator[tuple[str, str]]:
    for name in _git("ls-files"):
        file = ROOT / name
        if file.is_file():
            yield name, file.read_text("utf-8", "replace")


def test_the_wheel_holds_exactly_the_six_packages(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == set(PACKAGES)
    assert {"deploy/local/jars.lock", "monitoring/jmx/kafka.yml", "monitoring/jmx/spark.yml"} <= set(names)
    assert {f"deploy/bench/suite/report/report.{end}" for end in ("css", "js")} <= set(names)
    boards = (ROOT / "monitoring" / "grafana" / "dashboards").glob("*.json")
    assert {f"monitoring/grafana/dashboards/{file.name}" for file in boards} <= set(names)
    scenarios = (ROOT / "deploy" / "bench" / "scenarios").glob("*.toml")
    assert {f"deploy/bench/scenarios/{file.name}" for file in scenarios} <= set(names)
    chart = (ROOT / "deploy" / "helm" / "tidegate").rglob("*")
    assert {str(file.relative_to(ROOT)) for file in chart if file.is_file()} <= set(names)
    shipped = {name for name in names if name.startswith("gateway/presets/") and name.endswith(".toml")}
    assert shipped == {f"gateway/presets/{file.name}" for file in (ROOT / "gateway" / "presets").glob("*.toml")}


def test_every_package_resolves_to_this_checkout() -> None:
    assert find_foreign_packages(owners={}) == []


def test_an_intruder_is_named() -> None:
    found = find_foreign_packages(owners={"streaming": ["tidegate", "mosaicml-streaming"], "gateway": ["tidegate"]})
    assert found == ["The package streaming is also installed by mosaicml-streaming."]
    assert "comes from" in find_foreign_packages(owners={}, root=Path("/elsewhere"))[0]


# Written in pieces, so that this file does not hold what it looks for.
REGISTRIES = [
    "pypi" + ".org", "python" + "hosted", "repo1.maven" + ".org", "repo.maven" + ".apache", "maven" + "-central",
    "registry.npmjs" + ".org", "conda.anaconda" + ".org", "docker" + ".io", "ghcr" + ".io", "quay" + ".io",
]  # fmt: skip
PRIVATE = re.compile("/" + r"(?:work/(?:main|shared)|tmp/w/|(?:home|Users)/(?!somebody)\w+/)")
SECRET = re.compile(
    "|".join(["AKIA" + "[0-9A-Z]{16}", "-----BEGIN " + "[A-Z ]*PRIVATE KEY", "gh[pousr]" + "_[A-Za-z0-9]{36}"])
)


def test_no_tracked_file_names_a_registry_a_private_path_or_a_secret() -> None:
    found = []
    for name, text in _tracked_texts():
        found += [f"{name}: {host}" for host in REGISTRIES if host in text.lower()]
        found += [f"{name}: {match[0]}" for pattern in (PRIVATE, SECRET) for match in pattern.finditer(text)]
    assert found == []


def test_no_seventh_source_folder() -> None:
    folders = {name.split("/")[0] for name in _git("ls-files", "*.py") if "/" in name}
    assert folders <= {*PACKAGES, "tests"}


def test_only_what_tests_share_is_a_package_and_tests_are_named_after_their_hop() -> None:
    files = [Path(name) for name in _git("ls-files", "tests")]
    packages = {file.parent.as_posix() for file in files if file.name == "__init__.py"}
    assert packages == {"tests", "tests/fuzz", "tests/support"}
    prefixed = re.compile(rf"tests/(?!unit/)\w+/test_(?:{'|'.join(PACKAGES)})_\w+\.py")
    in_folder = re.compile(rf"tests/unit/(?:{'|'.join(PACKAGES)})/test_\w+\.py")
    tests = [file.as_posix() for file in files if file.name.startswith("test_") and file.suffix == ".py"]
    assert [name for name in tests if not (prefixed.fullmatch(name) or in_folder.fullmatch(name))] == []


def _leaves_the_checkout(name: str, text: str) -> list[str]:
    """Paths in a module that begin at its own place and end above the checkout, or that name a folder next to it."""
    depth = len(Path(name).parts)
    starts = r"__file__\)(?:\.resolve\(\)|\.absolute\(\))*((?:\.parents\[\d+\]|\.parent)+)"
    found = []
    for match in re.finditer(starts, text):
        steps = [int(index) + 1 if index else 1 for index in re.findall(r"\.parent(?:s\[(\d+)\])?", match[1])]
        found += [match[0]] if sum(steps) > depth else []
    # Names of modules for a folder of the checkout: the root itself, and what lies in it.
    above = r"\bROOT\.parent\b|\bTESTS\.parent\.parent\b|" + r"""["']\.\./""" + "shared"
    return found + [match[0] for match in re.finditer(above, text)]


def test_nothing_is_read_from_next_to_the_checkout() -> None:
    """A clone anywhere runs all tests: their data lies in tests/data."""
    found = {
        name: _leaves_the_checkout(name, text)
        for name, text in _tracked_texts()
        if name.endswith(".py") and name != "tests/guards/test_deploy_repository.py"
    }
    assert {name: paths for name, paths in found.items() if paths} == {}
    outside = "SUITE = Path(__file__).parents[2].parent / 'x'"
    assert _leaves_the_checkout("tests/unit/test_x.py", outside)
    assert not _leaves_the_checkout("tests/unit/test_x.py", "Path(__file__).resolve().parents[1].parent / 'tests'")


def test_data_of_tests_stands_next_to_its_licence() -> None:
    data = ROOT / "tests" / "data"
    listed = (data / "README.md").read_text("utf-8")
    for path in data.iterdir():
        assert path.name.startswith("LICENSE") or path.name == "README.md" or f"`{path.name}" in listed, path.name
    for licence in re.findall(r"`(LICENSE[\w.-]*)`", listed):
        assert list(data.rglob(licence)), licence
    assert len(list((data / "json-test-suite").glob("*.json"))) == 318


def _sections() -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in Settings.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield name, annotation


def test_every_setting_has_a_description() -> None:
    inner: tuple[type[BaseModel], ...] = (
        Settings, RouteSettings, MappingSettings, TimeSource, QuantitySettings, ValueTimes, ValueUnits, FormatSettings,
        NumberSettings, QualitySettings, TimeOffset, VendorSettings, Profile, MetricRules, MqttLogin,
    )  # fmt: skip
    bare = [
        f"{section}.{name}"
        for section, model in [*_sections(), *((each.__name__, each) for each in inner)]
        for name, field in model.model_fields.items()
        if not field.description
    ]
    assert bare == []
    assert all(
        model.model_config.get("frozen") and model.model_config.get("extra") == "forbid" for _, model in _sections()
    )


def test_only_the_settings_read_the_environment_for_settings() -> None:
    """Paths of the system (PATH, JAVA_HOME, caches) may be looked up where they are used; settings may not."""
    reading = re.compile(r"os\.(?:environ|getenv)[^\n]*TIDEGATE_\w+__")
    found = [
        name
        for name, text in _tracked_texts()
        if name.endswith(".py") and not name.startswith("tests/") and reading.search(text)
    ]
    assert found == []


def test_modules_stay_small() -> None:
    long = {
        name: text.count("\n")
        for name, text in _tracked_texts()
        if name.endswith(".py") and not name.startswith("tests/") and text.count("\n") > 450
    }
    assert long == {}


def test_the_benchmarks_file_can_be_filled() -> None:
    """Without its marks, `bench report --markdown` cannot replace the tables."""
    lines = (ROOT / "BENCHMARKS.md").read_text("utf-8").splitlines()
    assert [line for line in lines if line in (BEGIN, END)] == [BEGIN, END]


def test_the_file_index_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from file_index import render; import sys; sys.stdout.write(render())"],
        cwd=ROOT / "tests", capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout.decode("utf-8") == (ROOT / "FILES.md").read_text("utf-8"), "run `make index`"


def test_fixtures_that_all_tests_share_have_names_of_their_own() -> None:
    """Pytest takes the last of two plugins' fixtures of one name without a word, and the other's tests get a stranger."""
    owners: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tests" / "support").glob("*.py")):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and any(
                "pytest.fixture" in ast.unparse(x) for x in node.decorator_list
            ):
                owners.setdefault(node.name, []).append(file.name)
    assert len(owners) > 20
    assert {name: files for name, files in owners.items() if len(files) > 1} == {}


def test_each_promise_has_tests() -> None:
    text = (ROOT / "FILES.md").read_text("utf-8")
    rows = re.findall(r"^\| (P\d) [^|]+\| (.*) \|$", text, re.MULTILINE)
    assert [name for name, _ in rows] == [f"P{number}" for number in range(1, 10)]
    assert all(tests for _, tests in rows)
