"""Checks the subjects of commits, for `make commits`: area first, imperative, at most 72 characters, and a body that says why.

Usage: python tests/commit_subjects.py [RANGE], by default the commits that main does not have. Exit code 1: a fault.
"""

import re
import subprocess
import sys
from collections.abc import Iterator

MOST = 72
_FORM = re.compile(r"^[a-z][a-z0-9 ,/_-]*: \S")
_NOT_IMPERATIVE = re.compile(
    r"^(?:the|a|an|what|whether|who|how|when|where|it|its|each|every|no|there|\w{2,}(?:ed|ing))\b"
)
_IMPERATIVE = {"bring", "embed", "feed", "need", "seed", "shed", "speed", "string"}
"""Verbs that look like a past or a present participle."""


def faults(subject: str, body: str) -> Iterator[str]:
    """Each rule that a commit breaks, as a sentence."""
    if len(subject) > MOST:
        yield f"has {len(subject)} characters; at most {MOST}"
    if not _FORM.match(subject):
        yield "does not begin with an area, such as `landing: `"
        return
    words = subject.partition(": ")[2]
    first = words.partition(" ")[0].lower()
    if first not in _IMPERATIVE and _NOT_IMPERATIVE.match(words.lower()):
        yield f"does not begin with an imperative after the area, but with `{first}`"
    if subject.endswith("."):
        yield "ends with a full stop"
    if not body.strip():
        yield "has no body that says why"


def commits(span: str) -> Iterator[tuple[str, str, str]]:
    """Short hash, subject and body of each commit in the range, merges left out."""
    command = ["git", "log", "--no-merges", "--format=%h%x00%s%x00%b%x01", span]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for entry in done.stdout.split("\x01"):
        if entry.strip():
            short, subject, body = entry.strip("\n").split("\0")
            yield short, subject, body


def main(arguments: list[str]) -> int:
    """Print the faults of each commit."""
    found = [
        f"{short} {subject!r} {fault}."
        for short, subject, body in commits(arguments[0] if arguments else "main..HEAD")
        for fault in faults(subject, body)
    ]
    sys.stdout.write(("\n".join(found) or "All commit subjects follow the rules.") + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
