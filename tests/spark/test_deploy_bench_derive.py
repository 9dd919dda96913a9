"""`bench derive` measures passes that write what the derivation writes."""

from pathlib import Path

import psutil
from deltalake import DeltaTable

from deploy.bench.derive import WARM_PASSES, measure_passes
from lakehouse.session import LakeSession


def test_a_pass_is_measured_with_the_rows_that_it_wrote(lake: LakeSession, tmp_path: Path) -> None:
    found = measure_passes(
        lake, tmp_path, devices=180, passes=1, processes=[psutil.Process(lake.jvm.process.pid)], minutes=3
    )
    # All devices in minutes 0 to 2, and 84 of them in the passes, which are in minute 3. A rolling window holds 15 minutes.
    passed = (WARM_PASSES + 1) * 7 * 3
    windows = {"rollups_1m": 3 * 180 + passed, "rollups_5m": 180, "rollups_1h": 180, "rolling_15m": 17 * 180 + passed}
    rows = {name: DeltaTable(str(tmp_path / name)).to_pyarrow_table(columns=["device"]).num_rows for name in windows}
    assert rows == windows
    assert found["rows_written"] == sum(windows.values())
    assert found["cpu_seconds"] > 0
    assert found["rows_per_second"] > 0
