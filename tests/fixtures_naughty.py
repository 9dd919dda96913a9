"""The big list of naughty strings, where it lies beside this checkout; `from tidegate_tests_fixtures_naughty import NAUGHTY`."""

import json
from pathlib import Path

LIST = Path(__file__).parents[2] / "shared" / "data" / "naughty-strings.json"
NAUGHTY: list[str] = json.loads(LIST.read_text("utf-8")) if LIST.exists() else []
"""All 515 of them; none where the list is not there."""
