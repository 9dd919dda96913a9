"""`bench derive` measures passes that write what the derivation writes."""

from pathlib import Path

import psutil
from deltalake import DeltaTable

from deploy.bench.derive import WARM_PASSES, measure_passes
from lakehouse.session import LakeSession


def test_a_pass_is_measured_with_the_rows_that_it_wrote(lake: LakeSession, tmp_path: Path) -> None:
    found = measure_passes(
        lake.spark, tmp_path, devices=180, passes=1, processes=[psutil.Process(lake.jvm.process.pid)], minutes=3
    )
    # 3 minutes, and passes of 7 s that end in the fourth one: windows of it, and rolling ones that begin up to 14 minutes before.
    assert (WARM_PASSES + 1) * 7 < 60
    windows = {"rollups_1m": 4, "rollups_5m": 1, "rollups_1h": 1, "rolling_15m": 18}
    rows = {name: DeltaTable(str(tmp_path / name)).to_pyarrow_table(columns=["device"]).num_rows for name in windows}
    assert rows == {name: 180 * count for name, count in windows.items()}
    assert found["rows_written"] == 180 * sum(windows.values())
    assert found["cpu_seconds"] > 0
    assert found["rows_per_second"] > 0
