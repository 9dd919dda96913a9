"""Builds kube-apiserver and etcd from their Go modules where they are missing: `python -m tests.support.kube_programs`.

The build takes about an hour on two cores, so only `make kube` starts it. Its last line names the folder for TIDEGATE_KUBE.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from deploy.local.artifacts import cache_dir
from tests.support.helm import GO_PLACES

__all__ = ["PROGRAMS", "main"]

VERSION: Final = "v1.37.2"
ETCD_VERSION: Final = "v3.7.3"
PROGRAMS: Final = {"etcd": "go.etcd.io/etcd/server/v3", "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver"}
"""Name of each program, and the package it is built from."""
_NOT_IN_THE_MODULE: Final = re.compile(r"^\s*(k8s\.io/[\w-]+) => \./staging", re.MULTILINE)
_GO_VERSION: Final = re.compile(r"^go (\S+)", re.MULTILINE)


def main() -> int:
    """Have both programs; 69 with the next step if that is impossible."""
    folder = cache_dir().parent / "bin"
    away = [name for name in PROGRAMS if not (folder / name).is_file()]
    if away:
        go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:{GO_PLACES}")
        if go is None:
            sys.stderr.write(
                f"{' and '.join(away)} are not in {folder}, and Go is not installed to build them. Install Go, or put both "
                "programs into a folder, set TIDEGATE_KUBE to it, and run the tests.\n"
            )
            return 69
        sys.stderr.write(f"building {' and '.join(away)} ({VERSION}); this takes about an hour on two cores\n")
        try:
            _build(go, folder, away)
        except subprocess.CalledProcessError as fault:
            sys.stderr.write(f"go failed: {fault}\n")
            return 69
    sys.stdout.write(f"{folder}\n")
    return 0


def _build(go: str, folder: Path, names: list[str]) -> None:
    """Build in a module of its own: that of Kubernetes replaces its libraries by folders that only its repository has."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"}
    major, minor, _ = VERSION[1:].split(".")
    versions = {"gitVersion": VERSION, "gitMajor": major, "gitMinor": minor}
    known = " ".join(f"-X k8s.io/component-base/version.{name}={text}" for name, text in versions.items())
    with tempfile.TemporaryDirectory() as place:
        found = subprocess.check_output(
            [go, "mod", "download", "-json", f"k8s.io/kubernetes@{VERSION}"], cwd=place, env=environment, text=True
        )
        original = Path(json.loads(found)["GoMod"]).read_text("utf-8")
        (Path(place) / "go.mod").write_text(_module(original), encoding="utf-8")
        for name in names:
            command = [go, "build", "-p", "1", "-ldflags", f"-s -w {known}", "-o", str(folder / name), PROGRAMS[name]]
            subprocess.run(["nice", "-n", "19", *command], cwd=place, env=environment, check=True)


def _module(original: str) -> str:
    """Return a go.mod that requires both programs, with Kubernetes' libraries in the version of its release."""
    go_version = _GO_VERSION.search(original)
    assert go_version is not None
    version = VERSION.replace("v1.", "v0.")
    replaced = "".join(f"\t{name} => {name} {version}\n" for name in _NOT_IN_THE_MODULE.findall(original))
    required = f"\tk8s.io/kubernetes {VERSION}\n\tgo.etcd.io/etcd/server/v3 {ETCD_VERSION}\n"
    return f"module kube\n\ngo {go_version[1]}\n\nrequire (\n{required})\n\nreplace (\n{replaced})\n"


if __name__ == "__main__":
    sys.exit(main())
