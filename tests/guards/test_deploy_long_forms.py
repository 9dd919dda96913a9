"""What `make test` leaves out, for it takes minutes, runs in `make chaos`, and has a short form that `make test` runs."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SHORT_FORMS = {
    "e2e/test_deploy_lifecycle.py": "integration/test_gateway_faults_kafka.py::test_a_kafka_whose_disk_is_full",
    "e2e/test_deploy_monitor.py": "the same test with one kill",
    "e2e/test_deploy_page.py": "the same test with one kill",
    "e2e/test_deploy_production_page.py": "integration/test_deploy_kafka_rights.py::test_a_user_gets",
    "e2e/test_deploy_recovery.py": "unit/monitoring/test_alert_texts.py::test_commands_that_people",
    "e2e/test_deploy_secured_run.py": "integration/test_deploy_secured_run.py::test_the_gateway_writes",
    "e2e/test_deploy_upgrade.py": "spark/test_streaming_upgrade.py::test_a_checkpoint_and_tables",
    "integration/test_deploy_bench_failover.py": "integration/test_deploy_testbed.py::test_a_kafka_of_zookeeper_mode",
    "integration/test_deploy_certs.py": "integration/test_deploy_certs.py::test_kafka_accepts_clients",
    "integration/test_deploy_image.py": "unit/deploy/test_docker.py::test_the_image_installs",
    "integration/test_deploy_systemd.py": "unit/deploy/test_export_systemd.py::test_systemd_reads_the_units",
    "integration/test_deploy_three_brokers.py": "integration/test_ingest_kafka_login.py::test_a_writer_logs_in_again",
    "integration/test_gateway_standby.py": "unit/gateway/test_gateway_lease.py::test_a_holder_without_a_timer",
    "spark/test_deploy_mutants.py": "the same test with every second fault",
    "spark/test_lakehouse_query_server.py": "unit/lakehouse/test_confine.py::test_files",
    "spark/test_streaming_executors.py": "spark/test_streaming_executors.py::test_executors_judge_copies",
    "spark/test_streaming_overtaken.py": "spark/test_lakehouse_object_store.py::test_a_writer_that_was_overtaken",
    "spark/test_streaming_power_cut.py": "the same test with the first subsets",
    "spark/test_streaming_service.py": "the same test with two kills",
    "spark/test_streaming_sql_memory.py": "unit/streaming/test_sql_strikes.py::test_two_ends_of_the_jvm",
    "spark/test_streaming_worker_killed.py": "spark/test_streaming_executors.py::test_executors_judge_copies",
}
"""Each file with the mark `chaos`, and the test that takes its place; of a parametrized one that is another parameter."""


def marked() -> dict[str, str]:
    """Text of each file of tests that has the mark, by its path."""
    files = {path.relative_to(TESTS).as_posix(): path.read_text("utf-8") for path in TESTS.rglob("test_*.py")}
    own = Path(__file__).relative_to(TESTS).as_posix()
    return {name: text for name, text in files.items() if re.search(r"\bmark\.chaos\b", text) and name != own}


def test_each_long_form_has_a_short_one() -> None:
    assert marked().keys() == SHORT_FORMS.keys()


@pytest.mark.parametrize("file", SHORT_FORMS)
def test_a_short_form_is_a_test_that_is_not_left_out(file: str) -> None:
    path, _, beginning = SHORT_FORMS[file].partition("::")
    if not beginning:
        assert re.search(r"pytest\.param\([^\n]*mark\.chaos", marked()[file]), "a parameter is left out, not the test"
        return
    tree = ast.parse((TESTS / path).read_text("utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith(beginning)]
    assert len(found) == 1
    assert not [mark for mark in found[0].decorator_list if "chaos" in ast.unparse(mark)]


def test_make_chaos_runs_what_make_test_leaves_out() -> None:
    def commands(target: str) -> str:
        return subprocess.check_output(["make", "-n", target, "PYTHON=python3"], cwd=TESTS.parent, text=True)

    assert re.search(r"-m pytest -m chaos\b", commands("chaos"))
    assert "tests/run.py" in commands("test")
