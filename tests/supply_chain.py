"""Bill of materials, licences and known vulnerabilities of everything that is installed or fetched, for `make audit`.

Parts are the pinned Python packages, the jars of the lock list, and the jars that pyspark brings along. The advisories are a
snapshot in OSV's form (tests/data/advisories), so no network is needed. A newer export of OSV can be named on the command line.

Source: CycloneDX 1.6 (bill of materials), OSV schema 1.6 (advisories), package URLs.
"""

import argparse
import hashlib
import importlib.metadata
import json
import re
import sys
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from deploy.local.artifacts import read_lock

__all__ = ["Finding", "Part", "accepted_of", "advisories_of", "bill_of_materials", "findings_of", "main", "parts_of"]

ROOT = Path(__file__).resolve().parents[1]
SNAPSHOT = ROOT / "tests" / "data" / "advisories"
ACCEPTED = SNAPSHOT / "accepted.toml"
PINS: Final = ("constraints.txt", "constraints-jdk.txt", "constraints-readers.txt")
UNKNOWN: Final = "unknown"
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)(.*(?:\n +--hash=.*)*)", re.MULTILINE)
_HASH = re.compile("--hash=sha256:([0-9a-f]{64})")
_LICENCE_OF_POM = re.compile(r"<license>\s*<name>\s*(.*?)\s*</name>", re.DOTALL)
_FAMILIES: Final = {
    "Apache-2.0": r"apache.*2|asl.?2|^apache( software license)?$",
    "MIT": r"^(the )?mit( license)?$|opensource.org/licenses?/mit",
    "BSD-3-Clause": r"bsd.?3|3.clause bsd|new bsd",
    "BSD-2-Clause": r"bsd.?2",
}
"""Names of usual licences, for the many ways in which packages write them. A text that names several is left as it is."""
_QUALIFIERS: Final = ("alpha", "beta", "milestone", "rc", "snapshot", "", "sp")
"""Maven's order of qualifiers; the empty one, and `final` or `ga`, is the release itself."""

Use = Literal["product", "tests"]


@dataclass(frozen=True, order=True)
class Part:
    """One package or jar.

    Attributes:
        ecosystem: OSV's name of the registry: `PyPI` or `Maven`.
        name: the package, or `group:artifact`.
        version: exact version.
        use: `product` if a running Tidegate has it, `tests` if only checks and tests do.
        licence: what the package itself says; `unknown` if it says nothing.
        hashes: SHA-256 of its files, as pinned or as found.
    """

    ecosystem: str
    name: str
    version: str
    use: Use = "product"
    licence: str = UNKNOWN
    hashes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """An advisory that applies to a part; `accepted` is the reason why it does no harm here, empty if there is none."""

    part: Part
    advisory: str
    summary: str
    accepted: str = ""


def parts_of(root: Path = ROOT, *, jars: bool = True) -> list[Part]:
    """Return all parts, sorted; a jar that is both in the lock list and in pyspark comes once. `jars`: also those of pyspark."""
    inside = _jars_of_pyspark() if jars else ()
    found = {(part.ecosystem, part.name, part.version): part for part in inside}
    for jar in read_lock():
        part = Part("Maven", f"{jar.group}:{jar.name}", jar.version, licence=_apache(jar.group), hashes=(jar.sha256,))
        found[part.ecosystem, part.name, part.version] = part
    return sorted([*_packages(root), *found.values()])


def _packages(root: Path) -> Iterator[Part]:
    product = _names_of_product(root)
    for file in PINS:
        for name, version, rest in _PIN.findall((root / file).read_text("utf-8")):
            plain = canonicalize_name(name)
            use: Use = "product" if plain in product else "tests"
            yield Part("PyPI", plain, version, use, _licence_of_package(plain), tuple(sorted(_HASH.findall(rest))))


def _names_of_product(root: Path) -> set[str]:
    """Names of the packages that the product needs, and of those that they need in turn."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    waiting = [
        *project["dependencies"],
        *(text for group in project["optional-dependencies"].values() for text in group),
    ]
    names: set[str] = set()
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name in names or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        names.add(name)
        with suppress(importlib.metadata.PackageNotFoundError):
            waiting += importlib.metadata.requires(name) or []
    return names


def _licence_of_package(name: str) -> str:
    try:
        about = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN
    said = about.get("License-Expression") or about.get("License") or ""
    classes = [text.split(" :: ")[-1] for text in about.get_all("Classifier") or () if text.startswith("License ::")]
    if said and "\n" not in said and len(said) <= 80:
        return _spdx(said)
    return _spdx(", ".join(classes)) or UNKNOWN


def _jars_of_pyspark() -> Iterator[Part]:
    import pyspark

    for file in sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar")):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        with zipfile.ZipFile(file) as jar:
            group, name, version = _coordinate(jar, file.stem)
            licence = _spdx(_licence_of_jar(jar)) or _apache(group)
        yield Part("Maven", f"{group}:{name}", version, licence=licence, hashes=(digest,))


def _coordinate(jar: zipfile.ZipFile, stem: str) -> tuple[str, str, str]:
    """Return group, artifact and version of a jar; without a group it is found by its file name alone.

    A jar that holds others has several files with coordinates; the one whose artifact begins the file name is its own.
    """
    for entry in jar.namelist():
        if entry.startswith("META-INF/maven/") and entry.endswith("/pom.properties"):
            lines = jar.read(entry).decode("utf-8", "replace").splitlines()
            said = dict(line.strip().split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
            if stem == f"{said.get('artifactId')}-{said.get('version')}":
                return said.get("groupId", UNKNOWN), said["artifactId"], said["version"]
    name, version = re.fullmatch(r"(.+?)-(\d.*)", stem).groups() if re.fullmatch(r"(.+?)-(\d.*)", stem) else (stem, "0")  # type: ignore[union-attr]
    return UNKNOWN, name, version


def _licence_of_jar(jar: zipfile.ZipFile) -> str:
    names = jar.namelist()
    for entry in names:
        if entry.startswith("META-INF/maven/") and entry.endswith("/pom.xml"):
            said = _LICENCE_OF_POM.findall(jar.read(entry).decode("utf-8", "replace"))
            if said:
                return ", ".join(dict.fromkeys(said))
    if "META-INF/MANIFEST.MF" in names:
        manifest = jar.read("META-INF/MANIFEST.MF").decode("utf-8", "replace").replace("\r\n ", "").replace("\n ", "")
        said = re.findall(r"^Bundle-License:\s*(.+?)\s*$", manifest, re.MULTILINE)
        if said:
            return str(said[0])
    texts = [entry for entry in names if re.fullmatch(r"(META-INF/)?LICEN[CS]E(\.\w+)?", entry)]
    return "Apache-2.0" if any(b"Apache License" in jar.read(entry)[:2000] for entry in texts) else ""


def _spdx(text: str) -> str:
    """Return the short name of a licence that is one of the usual ones; else the text."""
    found = [name for name, form in _FAMILIES.items() if re.search(form, text, re.IGNORECASE)]
    return found[0] if len(found) == 1 and not re.search(r",(?! Version)| AND | OR |GPL|CDDL|EPL", text) else text


def _apache(group: str) -> str:
    """Return the licence of the Apache foundation's own projects, which all have the same one."""
    return "Apache-2.0" if group.startswith("org.apache.") else UNKNOWN


def bill_of_materials(parts: Iterable[Part]) -> str:
    """Return the parts as CycloneDX 1.6 in JSON."""
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentScope, ComponentType
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    bom, make = Bom(), LicenseFactory().make_from_string
    bom.metadata.component = Component(name="tidegate", type=ComponentType.APPLICATION)
    components = []
    for part in parts:
        group, _, name = part.name.rpartition(":")
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=text) for text in part.hashes]
        url = PackageURL({"PyPI": "pypi", "Maven": "maven"}[part.ecosystem], group or None, name, part.version)
        components.append(
            Component(
                name=name,
                group=group or None,
                version=part.version,
                type=ComponentType.LIBRARY,
                scope=ComponentScope.REQUIRED if part.use == "product" else ComponentScope.EXCLUDED,
                licenses=[make(part.licence)] if part.licence != UNKNOWN else [],
                # A pinned package has one hash per file of the release; a component has those of one file.
                hashes=hashes if len(hashes) == 1 else [],
                purl=url,
                bom_ref=str(url),
            )
        )
    bom.components.update(components)
    bom.register_dependency(bom.metadata.component, components)
    return JsonV1Dot6(bom).output_as_string(indent=2)


def advisories_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the advisories of a JSON-lines file, of a folder of such files and of JSON files, or of OSV's zip file."""
    if path.is_dir():
        for file in sorted([*path.rglob("*.jsonl"), *path.rglob("*.json")]):
            yield from advisories_of(file)
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as packed:
            yield from (json.loads(packed.read(name)) for name in sorted(packed.namelist()) if name.endswith(".json"))
    elif path.suffix == ".jsonl":
        yield from (json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip())
    else:
        yield json.loads(path.read_text("utf-8"))


def findings_of(
    parts: Iterable[Part], advisories: Iterable[Mapping[str, Any]], accepted: Mapping[str, str]
) -> list[Finding]:
    """Return the advisories that apply, each once per part, the newest first.

    Args:
        parts: what is used.
        advisories: in OSV's form; withdrawn ones do not count.
        accepted: advisory, or one of its aliases, to the reason why it does no harm.
    """
    by_name: dict[tuple[str, str], list[Part]] = {}
    for part in parts:
        by_name.setdefault((part.ecosystem, part.name), []).append(part)
    found: dict[tuple[Part, str], Finding] = {}
    for advisory in advisories:
        if advisory.get("withdrawn"):
            continue
        names = [advisory["id"], *advisory.get("aliases", ())]
        reason = next((accepted[name] for name in names if name in accepted), "")
        summary = advisory.get("summary") or str(advisory.get("details", "")).strip().split("\n")[0][:160]
        for affected in advisory.get("affected", ()):
            package = affected.get("package", {})
            ecosystem = str(package.get("ecosystem", ""))
            name = canonicalize_name(package.get("name", "")) if ecosystem == "PyPI" else str(package.get("name", ""))
            for part in by_name.get((ecosystem, name), ()):
                # The same fault has one number per database; its CVE number is the one they share.
                known = next((text for text in names if text.startswith("CVE-")), advisory["id"])
                if _is_affected(part, affected):
                    found.setdefault((part, known), Finding(part, known, summary, reason))
    return sorted(found.values(), key=lambda each: (each.advisory, each.part), reverse=True)


def _is_affected(part: Part, affected: Mapping[str, Any]) -> bool:
    if part.version in affected.get("versions", ()):
        return True
    ranges = [each for each in affected.get("ranges", ()) if each.get("type") in ("ECOSYSTEM", "SEMVER")]
    return any(_is_within(part, each.get("events", ())) for each in ranges)


def _is_within(part: Part, events: Iterable[Mapping[str, str]]) -> bool:
    """Follow a range's events, in the order of their versions, up to the part's version."""
    here = _Order(part.ecosystem, part.version)
    inside = False
    for event in events:
        kind, text = next(iter(event.items()))
        there = _Order(part.ecosystem, "0" if text == "0" else text)
        if kind == "introduced" and (text == "0" or there <= here):
            inside = True
        elif (kind == "fixed" and there <= here) or (kind == "last_affected" and there < here):
            inside = False
    return inside


class _Order:
    """A version that compares as its registry does."""

    def __init__(self, ecosystem: str, text: str) -> None:
        self._key: Any = None
        if ecosystem == "PyPI":
            with suppress(InvalidVersion):
                self._key = Version(text)
        if self._key is None:
            self._key = tuple(_token(each) for each in re.findall(r"\d+|[a-z]+", text.lower()))

    def __le__(self, other: "_Order") -> bool:
        return not other < self

    def __lt__(self, other: "_Order") -> bool:
        if isinstance(self._key, Version) and isinstance(other._key, Version):
            return self._key < other._key
        mine, its = (key if isinstance(key, tuple) else () for key in (self._key, other._key))
        return next((a < b for a, b in zip_longest(mine, its, fillvalue=_token("")) if a != b), False)


def _token(text: str) -> tuple[int, int, str]:
    """Return a key for one part of a Maven version: qualifiers, then the release itself, then numbers."""
    if text.isdigit():
        return (1, int(text), "") if int(text) else (0, _QUALIFIERS.index(""), "")
    plain = {"a": "alpha", "b": "beta", "m": "milestone", "cr": "rc", "final": "", "ga": "", "release": ""}.get(
        text, text
    )
    known = plain in _QUALIFIERS
    return (0, _QUALIFIERS.index(plain), "") if known else (0, len(_QUALIFIERS), plain)


def accepted_of(file: Path) -> dict[str, str]:
    """Return the reasons for advisories that do no harm here."""
    return {name: str(reason) for name, reason in tomllib.loads(file.read_text("utf-8")).items()}


def main(arguments: Sequence[str]) -> int:
    """Write the bill of materials, print licences and advisories; 1 if an advisory applies and is not accepted."""
    parser = argparse.ArgumentParser(
        prog="make audit", description="Bill of materials, licences, known vulnerabilities."
    )
    parser.add_argument("--sbom", type=Path, default=Path("sbom.json"), help="file to write (CycloneDX 1.6)")
    parser.add_argument("--advisories", type=Path, default=SNAPSHOT, help="folder, .jsonl, or a zip file of OSV")
    asked = parser.parse_args(arguments)
    if not asked.advisories.exists():
        parser.error(
            f"--advisories {asked.advisories} does not exist. Name a folder, a .jsonl file or a zip file of OSV."
        )
    parts, known = parts_of(), list(advisories_of(asked.advisories))
    asked.sbom.write_text(bill_of_materials(parts) + "\n", "utf-8")
    findings = findings_of(parts, known, accepted_of(ACCEPTED))
    sys.stdout.write(
        "\n".join([f"{asked.sbom}: {_counted(parts)}", *_licences(parts), *_judged(parts, known, findings), ""])
    )
    return 1 if any(not each.accepted for each in findings) else 0


def _counted(parts: Sequence[Part]) -> str:
    return f"{len(parts)} parts, {sum(part.use == 'product' for part in parts)} of them in the product"


def _licences(parts: Sequence[Part]) -> Iterator[str]:
    yield "Licences"
    for licence, count in Counter(part.licence for part in parts).most_common():
        yield f"  {count:4}  {licence}"
    yield f"  Unknown: {', '.join(part.name.rpartition(':')[2] for part in parts if part.licence == UNKNOWN)}"


def _judged(parts: Sequence[Part], known: Sequence[Mapping[str, Any]], findings: Sequence[Finding]) -> Iterator[str]:
    newest = max((str(each.get("modified", "")) for each in known), default="")[:10]
    yield f"Advisories: {len(known)}, the newest of {newest or 'an unknown day'}"
    for each in findings:
        state = f"accepted: {each.accepted}" if each.accepted else "APPLIES"
        yield f"  {each.advisory}  {each.part.name} {each.part.version} ({each.part.use})  {state}"
        yield f"    {each.summary}"
    registries = {str(one.get("package", {}).get("ecosystem")) for each in known for one in each.get("affected", ())}
    unchecked = Counter(part.ecosystem for part in parts if part.ecosystem not in registries)
    yield from (
        f"  Not compared: {count} parts from {name}. Name its advisories with --advisories."
        for name, count in unchecked.items()
    )
    yield f"  {sum(not each.accepted for each in findings)} apply, {sum(bool(each.accepted) for each in findings)} are accepted"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
