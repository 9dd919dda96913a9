"""Metadata of commits: read without a fault whatever it holds, and written in one place."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.commit_metadata import CommitMetadata, custom_metadata, encode_metadata, metadata_of, metadata_text

ROOT = Path(__file__).parents[3]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from(["app", "derived", "stream", "request", "retention", "repair", "maintain", "other"])


@given(st.none() | st.text() | JSON.map(json.dumps) | st.dictionaries(KEYS, JSON).map(json.dumps))
def test_any_text_is_read_without_a_fault(text: str | None) -> None:
    metadata = CommitMetadata.parse(text)
    assert isinstance(metadata.data, dict)
    assert metadata.derived is None or isinstance(metadata.derived, dict)
    assert {*metadata.arguments} >= set()
    assert metadata.says_progress == bool({"app", "derived", "stream"} & {*metadata.data})
    assert metadata.is_repair == ("repair" in metadata.data)
    assert metadata.is_retention == ("retention" in metadata.data)


@given(st.dictionaries(KEYS, JSON))
def test_what_is_written_is_read(data: dict[str, Any]) -> None:
    assert CommitMetadata.parse(encode_metadata(data)).data == data
    assert metadata_of(custom_metadata(data)).data == data


@pytest.mark.parametrize("commit", [{}, {"userMetadata": None}, {"userMetadata": 7}, {"userMetadata": "not json"}])
def test_a_commit_of_another_program_has_no_metadata(commit: dict[str, Any]) -> None:
    assert metadata_of(commit) == CommitMetadata()
    assert metadata_text(commit) in (None, "not json")


def test_a_request_and_its_arguments_are_found() -> None:
    request = {"id": "1", "kind": "correct", "arguments": {"device": "a"}}
    metadata = CommitMetadata.parse(encode_metadata({"request": request, "corrected": 3}))
    assert metadata.request == request
    assert metadata.arguments == {"device": "a"}
    assert not metadata.says_progress


def test_the_key_of_delta_is_named_in_one_module() -> None:
    packages = ("deploy", "gateway", "ingest", "lakehouse", "monitoring", "streaming")
    files = [file for name in packages for file in (ROOT / name).rglob("*.py")]
    assert len(files) > 300
    assert [file.name for file in files if "userMetadata" in file.read_text("utf-8")] == ["commit_metadata.py"]
