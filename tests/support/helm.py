"""Real helm: builds it from its Go module where it is missing, and renders exported charts.

`python -m tests.support.helm` provides the program; tests only look for it, and are skipped with a reason where it is missing.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from deploy.cli import run as tidegate
from deploy.helm.chart_values import dump_values
from deploy.local.artifacts import cache_dir

__all__ = ["CHART_SECONDS", "HelmFault", "Render", "find_helm", "main"]

MODULE: Final = "helm.sh/helm/v3/cmd/helm@v3.22.0"
KUBERNETES: Final = (1, 34)
"""Version that helm assumes without a cluster. A build without it assumes one that is too old for the chart."""
GO_PLACES: Final = "/usr/local/go/bin:/usr/lib/go/bin"
CHART_SECONDS: Final = 60.0
Document = dict[str, Any]
Render = Callable[..., list[Document]]
"""`render(values, *flags, name="tidegate")` returns the manifests, or raises HelmFault."""


class HelmFault(Exception):
    """helm refused; the text is its own."""


def find_helm() -> str | None:
    """The program on PATH, else the one that `make helm` built."""
    return shutil.which("helm") or shutil.which("helm", path=str(_folder()))


def _folder() -> Path:
    return cache_dir().parent / "bin"


def main() -> int:
    """Have helm; 69 with the next step where that is impossible."""
    if program := find_helm():
        sys.stderr.write(f"helm is {program}\n")
        return 0
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:{GO_PLACES}")
    if go is None:
        sys.stderr.write(
            "helm is not installed, and there is no Go to build it. Install helm 3 or Go, and run it again.\n"
        )
        return 69
    sys.stderr.write(f"building helm from {MODULE}; this takes some minutes\n")
    environment = {**os.environ, "GOBIN": str(_folder()), "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    names = ("k8sVersionMajor", "k8sVersionMinor")
    known = " ".join(
        f"-X helm.sh/helm/v3/pkg/chartutil.{name}={number}" for name, number in zip(names, KUBERNETES, strict=True)
    )
    command = ["nice", "-n", "19", go, "install", "-ldflags", known, MODULE]
    done = subprocess.run(command, env=environment, check=False)
    return 0 if done.returncode == 0 else 69


def run_helm(program: str, arguments: Sequence[str], home: Path) -> str:
    """Standard output of helm, which keeps its files in `home`."""
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(home),
        **{f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")},
    }
    done = subprocess.run(
        [program, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=CHART_SECONDS
    )
    if done.returncode:
        raise HelmFault(f"{done.stdout}\n{done.stderr}".strip())
    return done.stdout


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs helm with these arguments, and returns what it prints."""
    program = find_helm()
    if program is None:
        pytest.skip("helm is not installed: make helm builds it")
    home = tmp_path_factory.mktemp("helm-home")
    return lambda *arguments: run_helm(program, arguments, home)


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart of the default settings, as the command writes it."""
    folder = tmp_path_factory.mktemp("chart") / "tidegate"
    assert tidegate(["export", "helm", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def render(helm: Callable[..., str], chart: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Render]:
    """See `Render`."""
    values_file = tmp_path_factory.mktemp("values") / "values.yaml"

    def documents(values: Mapping[str, Any], *flags: str, name: str = "tidegate") -> list[Document]:
        values_file.write_text(dump_values(values), encoding="utf-8")
        text = helm("template", name, str(chart), "--namespace", "plant", "--values", str(values_file), *flags)
        return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]

    yield documents


if __name__ == "__main__":
    sys.exit(main())
