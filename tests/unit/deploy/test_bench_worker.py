"""Processes of a load: their lines, the work that they give, and their end with the process that started them."""

import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.bench.kafka_load.client_work import ClientWork, elapsed_seconds
from deploy.bench.kafka_load.latency import merge_latencies
from deploy.bench.kafka_load.worker import LoadWorker
from ingest.contract.errors import UnavailableError

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def _python(program: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_process_that_stands_still_is_ended_and_named() -> None:
    with _python("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)") as process:
        with pytest.raises(UnavailableError, match="did not answer within 1 s and was killed"):
            LoadWorker(process).answer(0.6)
        assert process.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize(
    "program", ["raise SystemExit('no such option')", "print('{', end=''); raise SystemExit('no such option')"]
)
def test_a_process_that_ends_early_is_reported_with_its_last_words(program: str) -> None:
    with _python(program) as process, pytest.raises(UnavailableError, match="ended early: no such option"):
        LoadWorker(process).answer(60)


def test_a_process_of_a_load_ends_when_the_process_that_started_it_is_gone() -> None:
    program = (
        "import time\nfrom deploy.bench.kafka_load.worker import StarterLines\nlines = StarterLines()\n"
        "print(lines.take(), end='', flush=True)\nassert lines.take_if_there() is None\ntime.sleep(60)"
    )
    with _python(program) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("begin\n")
        process.stdin.flush()
        assert process.stdout.readline() == "begin\n"
        process.stdin.close()
        assert process.wait(50) == 1


def test_a_process_gives_the_work_of_each_session_for_which_a_line_comes() -> None:
    program = (
        "from deploy.bench.kafka_load.client_work import measure_client\n"
        "from deploy.bench.kafka_load.worker import serve_sessions, take_plan\n"
        "plan = take_plan()\n"
        "def run(word, lines):\n"
        "    with measure_client(0.0) as (work, latencies):\n"
        "        latencies.record(5000)\n"
        "        work.ended = work.began + 2\n"
        "    work.messages = plan['messages'] + int(word)\n"
        "    return work\n"
        "serve_sessions(run)\n"
    )
    with _python(program) as process:
        worker = LoadWorker(process)
        worker.say('{"messages": 7}')
        worker.await_ready()
        for number in (1, 2):
            worker.say(number)
            work = worker.work(60)
            assert (work.messages, merge_latencies([work.latencies]).count) == (7 + number, 1)
            assert elapsed_seconds([work]) == pytest.approx(2)
            assert work.cpu_seconds > 0 < work.python_cpu_seconds
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(50) == 1


@given(
    st.builds(
        ClientWork,
        messages=st.integers(0),
        began=FLOATS,
        latencies=st.text(),
        figures=st.dictionaries(st.text(), FLOATS),
    )
)
def test_the_work_of_a_client_is_one_line_from_which_it_is_read_again(work: ClientWork) -> None:
    line = work.encode()
    assert "\n" not in line
    assert ClientWork.decode(line) == work


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1))
def test_clients_together_take_from_the_first_beginning_to_the_last_end(times: list[tuple[float, float]]) -> None:
    seconds = elapsed_seconds([ClientWork(began=began, ended=ended) for began, ended in times])
    assert seconds > 0
    assert seconds >= max(ended - began for began, ended in times)
