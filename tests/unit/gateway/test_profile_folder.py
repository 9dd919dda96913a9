"""The folder of profiles: which holds, versions, and hot reload that never makes anything worse."""

import logging
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.profiles import profile_folder as folder_module
from gateway.profiles.model import Profile
from gateway.profiles.profile_folder import ProfileFolder, parse_profile
from gateway.profiles.profile_set import ProfileSet
from ingest.contract.errors import ConfigError


def text(name: str = "p", version: int = 1, *, devices: str = "dev-*", limit: float = 10) -> str:
    return f'name = "{name}"\nversion = {version}\ndevices = ["{devices}"]\n[metrics.t]\nmax = {limit}\n'


def profile(name: str, *devices: str, version: int = 1) -> Profile:
    return Profile.model_validate({"name": name, "version": version, "devices": devices, "metrics": {"t": {}}})


def settle(folder: ProfileFolder, needed: tuple[str, ...] = ()) -> bool:
    """What two looks bring: a change counts once it stood still from one to the next."""
    return [folder.refresh(needed=needed), folder.refresh(needed=needed)][1]


def held(folder: ProfileFolder, device: str = "dev-1") -> str | None:
    choice = folder.current.choose(device)
    return None if choice is None else choice.compiled.profile.label


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "p.toml").write_text(text())
    return tmp_path


# Which one holds.


def test_the_most_specific_pattern_wins_in_the_documented_order() -> None:
    profiles = ProfileSet([
        profile("all", "*"),
        profile("pumps", "pump-*"),
        profile("berlin", "*-berlin-*", "b?x*"),
        profile("one", "pump-berlin-7"),
        profile("marks", "pump-berlin-?"),
        profile("same", "pump-*"),
    ])  # fmt: skip

    def order(device: str) -> list[str]:
        return [choice.compiled.profile.name for choice in profiles.matching(device)]

    assert order("pump-berlin-7") == ["one", "marks", "berlin", "pumps", "same", "all"]
    assert order("pump-rome-7") == ["pumps", "same", "all"]
    assert order("a/b") == ["all"], "* matches slashes too"
    assert order("PUMP-1") == ["all"], "upper and lower case differ"
    assert [profiles.choose(device).because for device in ("pump-berlin-7", "x")] == ["pump-berlin-7", "*"]  # type: ignore[union-attr]


def test_the_registry_wins_over_the_route_and_both_over_patterns() -> None:
    profiles = ProfileSet([profile("exact", "dev-1"), profile("a"), profile("b")])
    for registered, route, told in (
        ("a", "b", "registry"),
        (None, "b", "route"),
        (None, None, "dev-1"),
        (None, "gone", "dev-1"),
    ):
        choice = profiles.choose("dev-1", registered=registered, route=route)
        assert choice is not None
        assert choice.because == told
    assert profiles.choose("dev-2") is None


def test_of_several_versions_the_highest_applies(path: Path) -> None:
    (path / "p-2.toml").write_text(text(version=2))
    (path / "old.toml").write_text(text(version=1, name="q", devices="x"))
    folder = ProfileFolder(path)
    assert held(folder) == "p@2"
    assert [(one.file, one.profile.label) for one in folder.files()] == [
        ("p.toml", "p@1"),
        ("p-2.toml", "p@2"),
        ("old.toml", "q@1"),
    ]
    (path / "p-2.toml").unlink()
    assert settle(folder)
    assert held(folder) == "p@1", "the older one is still there to go back to"


# At start.


def test_at_start_every_fault_is_told_at_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (path / "bad.toml").write_text("name = ")
    (path / "worse.toml").write_text(text().replace("max", "maxx"))
    (path / ".hidden.toml").write_text("no")
    (path / "notes.txt").write_text("no")
    with pytest.raises(ConfigError) as caught:
        ProfileFolder(path, needed=["named"])
    told = str(caught.value)
    assert "bad.toml: not valid TOML" in told
    assert "worse.toml: unknown key metrics.t.maxx; did you mean max?" in told
    assert "a route names profile 'named', but no file here has it" in told
    assert len(told.splitlines()) == 3
    assert set(ProfileFolder(path, strict=False).refused) == {"bad.toml", "worse.toml"}
    assert not caplog.records, "by who started it, not by the log too"


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: cannot read the folder of profiles"):
        ProfileFolder(tmp_path / "nowhere")


def test_an_empty_folder_is_one_to_put_profiles_into(tmp_path: Path) -> None:
    folder = ProfileFolder(tmp_path)
    assert held(folder) is None
    (tmp_path / "p.toml").write_text(text())
    assert settle(folder)
    assert held(folder) == "p@1"


# Hot reload.


def test_a_change_counts_once_it_stood_still(path: Path) -> None:
    folder = ProfileFolder(path)
    (path / "p.toml").write_text(text(version=2, limit=20))
    assert not folder.refresh(), "it may be half written"
    (path / "p.toml").write_text(text(version=3, limit=300))
    assert not folder.refresh()
    assert folder.refresh()
    assert held(folder) == "p@3"
    assert not folder.refresh()


def test_a_file_that_changes_while_it_is_read_is_not_taken(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ProfileFolder(path)
    (path / "p.toml").write_text(text(version=2))

    def changed(file: Path, stamp: object) -> bytes:
        file.write_text(text(version=3, limit=300))
        return read(file, stamp)  # type: ignore[arg-type]

    read = folder_module._read
    monkeypatch.setattr(folder_module, "_read", changed)
    assert not settle(folder)
    assert (held(folder), folder.refused) == ("p@1", {})
    monkeypatch.undo()
    assert settle(folder)
    assert held(folder) == "p@3"


def test_a_bad_file_is_refused_once_and_the_old_one_stays(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = ProfileFolder(path)
    (path / "p.toml").write_text("name = 'p'\nversion = 2")
    (path / "good.toml").write_text(text("good", devices="other"))
    with caplog.at_level(logging.INFO, "tidegate.gateway"):
        assert settle(folder), "the good file beside it counts"
        settle(folder)
    assert (held(folder), held(folder, "other")) == ("p@1", "good@1")
    [error] = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert "p.toml. Its previous content stays in use: metrics is missing" in error
    assert set(folder.refused) == {"p.toml"}
    (path / "p.toml").write_text(text(version=2))
    assert settle(folder)
    assert (held(folder), folder.refused) == ("p@2", {})


def test_a_removed_file_is_a_profile_that_applies_no_more(path: Path) -> None:
    folder = ProfileFolder(path)
    (path / "p.toml").unlink()
    assert settle(folder)
    assert held(folder) is None


def test_what_a_route_or_a_device_names_cannot_go_away(path: Path) -> None:
    folder = ProfileFolder(path, needed=["p"])
    (path / "p.toml").unlink()
    assert not settle(folder)
    assert (held(folder), set(folder.refused)) == ("p@1", {"p.toml"})
    (path / "renamed.toml").write_text(text(version=2))
    assert settle(folder), "it is there again under another file's name"
    assert (held(folder), folder.refused) == ("p@2", {})
    (path / "renamed.toml").write_text(text("other", devices="x"))
    settle(folder, needed=("p",))
    assert held(folder) == "p@2"


def test_one_version_stands_in_one_file(path: Path) -> None:
    folder = ProfileFolder(path)
    (path / "a-copy.toml").write_text(text(limit=99))
    assert not settle(folder)
    assert "p@1 is already in p.toml" in folder.refused["a-copy.toml"]


def test_a_folder_that_goes_away_changes_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = ProfileFolder(path)
    away = path.with_name("away")
    path.rename(away)
    with caplog.at_level(logging.ERROR, "tidegate.gateway"):
        assert not settle(folder)
        assert not settle(folder)
    assert (held(folder), len(caplog.records)) == ("p@1", 1)
    away.rename(path)
    settle(folder)
    assert (held(folder), folder.refused) == ("p@1", {})


def test_a_changed_file_of_the_same_version_is_warned_of(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = ProfileFolder(path)
    (path / "p.toml").write_text(text(limit=99))
    with caplog.at_level(logging.WARNING, "tidegate.gateway"):
        assert settle(folder)
    assert "kept its version" in caplog.text


def test_the_switch_of_a_mounted_volume_is_seen(tmp_path: Path) -> None:
    """Kubernetes mounts a folder of links into a folder that is a link itself, and switches that."""
    for version in (1, 2):
        (tmp_path / f"..v{version}").mkdir()
        (tmp_path / f"..v{version}" / "p.toml").write_text(text(version=version))
    (tmp_path / "..data").symlink_to("..v1")
    (tmp_path / "p.toml").symlink_to("..data/p.toml")
    (tmp_path / "dangling.toml").symlink_to("nowhere")
    folder = ProfileFolder(tmp_path, strict=False)
    assert (held(folder), set(folder.refused)) == ("p@1", {"dangling.toml"})
    (tmp_path / "new").symlink_to("..v2")
    os.replace(tmp_path / "new", tmp_path / "..data")
    assert settle(folder)
    assert held(folder) == "p@2"


STEPS = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.sampled_from(["good", "better", "bad", "half", "gone"]), st.sampled_from([0, 2, 3])
    ),
    max_size=12,
)


@settings(max_examples=50)
@given(STEPS)
def test_whatever_happens_on_disk_each_file_keeps_its_last_good_content(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int]]
) -> None:
    path = tmp_path_factory.mktemp("profiles")
    folder = ProfileFolder(path)
    wanted: dict[str, Profile] = {}
    for count, (name, kind, looks) in enumerate([*steps, ("a", "bad", 2)]):
        file = path / f"{name}.toml"
        if kind == "gone":
            file.unlink(missing_ok=True)
        else:
            good = text(name, 2 if kind == "better" else 1, devices=f"{name}*", limit=count)
            cut = {"bad": "name = [", "half": good.rpartition("[metrics")[0]}
            file.write_text(cut.get(kind, good))
        for _ in range(looks):
            folder.refresh()
        if looks >= 2:
            _follow(wanted, path)
            assert {one.file: one.profile for one in folder.files()} == wanted
            for device in ("a1", "b1"):
                choice = folder.current.choose(device)
                assert (choice.compiled.profile if choice else None) == wanted.get(f"{device[0]}.toml")


def _follow(wanted: dict[str, Profile], path: Path) -> None:
    """What each file said when it was last good, among the moments at which the folder was looked at."""
    for file in ("a.toml", "b.toml"):
        if not (path / file).exists():
            wanted.pop(file, None)
        elif "max" in (path / file).read_text():
            wanted[file] = parse_profile((path / file).read_bytes())


def test_what_is_no_regular_file_or_far_too_large_blocks_nothing(path: Path, tmp_path: Path) -> None:
    os.mkfifo(path / "pipe.toml")
    (path / "folder.toml").mkdir()
    (path / "disk.toml").symlink_to("/dev/zero")
    with (path / "large.toml").open("wb") as file:
        file.truncate(50_000_000_000)
    (path / "elsewhere").write_text(text("linked", devices="other"))
    (path / "link.toml").symlink_to("elsewhere")
    folder = ProfileFolder(path, strict=False)
    assert held(folder) == "p@1"
    assert held(folder, "other") == "linked@1"
    assert "not a regular file" in folder.refused["pipe.toml"]
    assert "not a regular file" in folder.refused["disk.toml"]
    assert "50000000000 bytes; wanted at most" in folder.refused["large.toml"]
    assert set(folder.refused) == {"pipe.toml", "folder.toml", "disk.toml", "large.toml"}
    assert not settle(folder), "told once, looked at once"
    (path / "p.toml").unlink()
    os.mkfifo(path / "p.toml")
    settle(folder)
    assert held(folder) == "p@1", "the previous content stays in use"
