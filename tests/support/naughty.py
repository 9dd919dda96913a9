"""The big list of naughty strings; `from tests.support.naughty import NAUGHTY`."""

import json
from pathlib import Path

NAUGHTY: list[str] = json.loads((Path(__file__).parents[1] / "data" / "naughty-strings.json").read_text("utf-8"))
"""All 515 of them."""
