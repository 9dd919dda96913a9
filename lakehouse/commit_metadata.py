"""Commit metadata: what a Delta commit says about itself, as one JSON object in Delta's `userMetadata`.

| kind | keys | written by | says how far the table is |
|---|---|---|---|
| landing | `app`, `batch`, `starts`, `offsets`, ... | streaming/landing_offsets.py (`Mark`) | yes |
| SQL stream | `stream`, `incarnation`, `batch`, `offsets`, ... | streaming/sql/marks.py (`StreamMark`) | yes |
| derivation | `derived`: version seen of each source table | streaming/derive/ | yes |
| request | `request`; `corrected` or `erased` | streaming/history/, streaming/sql/swap.py | no |
| retention | `retention`: days, keep_days | streaming/maintain/ | no |
| join | `maintain`: joined, rows, date | streaming/maintain/ | no |
| repair | `repair`: folder of what was set aside | streaming/repair_run.py | no |
| takeover | `writer`: epoch, host, pid | lakehouse/writer_epoch.py | no |

A commit may be of several kinds: an erasure repeats the newest mark. Commits of other programs have no metadata, or a text of
theirs: both read as empty. Log cleaning never removes the newest commit that says how far its table is.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["CommitMetadata", "custom_metadata", "encode_metadata", "metadata_of", "metadata_text"]

_KEY: Final = "userMetadata"
_PROGRESS: Final = frozenset({"app", "derived", "stream"})


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The metadata of one commit, read without a fault whatever it holds; `data` is empty where it is not ours."""

    data: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> "CommitMetadata":
        """The metadata in a text; empty where the text is absent or not a JSON object."""
        try:
            data = json.loads(text or "{}")
        except (ValueError, TypeError):
            return cls()
        return cls(data) if isinstance(data, dict) else cls()

    @property
    def says_progress(self) -> bool:
        """The commit says how far its table is: a mark of the landing or of a SQL stream, or a derivation's cursor."""
        return not _PROGRESS.isdisjoint(self.data)

    @property
    def derived(self) -> dict[str, Any] | None:
        """The cursor of a derivation: source table -> version seen, and what else it keeps; None in other commits."""
        found = self.data.get("derived")
        return dict(found) if isinstance(found, Mapping) else None

    @property
    def request(self) -> Mapping[str, Any]:
        """The request that this commit fulfils (see lakehouse/requests.py); empty in other commits."""
        found = self.data.get("request")
        return found if isinstance(found, Mapping) else {}

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of that request."""
        found = self.request.get("arguments")
        return found if isinstance(found, Mapping) else {}

    @property
    def is_retention(self) -> bool:
        """The commit removed days that are past their retention: what is derived from them stays."""
        return "retention" in self.data

    @property
    def is_repair(self) -> bool:
        """The commit removed files from the log because they are missing on disk."""
        return "repair" in self.data


def metadata_text(commit: Mapping[str, Any]) -> str | None:
    """The metadata of a `commitInfo` action, or of an entry of delta-rs's history, as text."""
    found = commit.get(_KEY)
    return found if isinstance(found, str) else None


def metadata_of(commit: Mapping[str, Any]) -> CommitMetadata:
    """The metadata of a `commitInfo` action, or of an entry of delta-rs's history."""
    return CommitMetadata.parse(metadata_text(commit))


def encode_metadata(data: Mapping[str, Any]) -> str:
    """Metadata as the text that a commit carries."""
    return json.dumps(data)


def custom_metadata(data: Mapping[str, Any]) -> dict[str, str]:
    """Metadata as delta-rs's `CommitProperties` takes it."""
    return {_KEY: encode_metadata(data)}
