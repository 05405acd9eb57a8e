# SPDX-License-Identifier: Apache-2.0
"""headrace.dask: workers of Dask that prefetch the inputs of their tasks."""

import os
import pickle
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import distributed
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from conftest import TIME_LIMIT_S, wait_until
from dask._task_spec import Task

import headrace
import headrace.dask
from headrace.dask import Partition
from headrace.machine import Node

ROOT = Path(__file__).parents[2]
ANY_PORT = "127.0.0.1:0"
"""Without it distributed takes 8787 even if it shows no dashboard, and warns if that is taken."""
ROWS = 100_000

# It also warns if a directory takes a second to make, as on a machine that does much else.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

AHEAD = 2
"""As many as the scheduler puts on a worker beside the task that runs there."""


@pytest.fixture
def partitions(tmp_path: Path) -> list[Partition]:
    """Six files, each with multiples of its number."""
    made = []
    for factor in range(6):
        table = pa.table({"other": ["x"] * ROWS, "n": [factor * each for each in range(ROWS)]})
        with pa.ipc.new_file(tmp_path / f"{factor}.arrow", table.schema) as file:
            file.write_table(table)
        made.append(Partition(str(tmp_path / f"{factor}.arrow"), ("n",)))
    return made


@pytest.fixture
def client(tmp_path: Path) -> Iterator[distributed.Client]:
    """A worker of one thread, in this process."""
    with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            dashboard_address=ANY_PORT,
            local_directory=str(tmp_path),
        ) as cluster,
        cluster.get_client() as made,
    ):
        yield made


def total(data: Any) -> int:
    return sum(pc.sum(batch["n"]).as_py() for batch in headrace.dask.read(data))


def hold(name: str) -> None:
    distributed.Event(name).wait(TIME_LIMIT_S)


def states_here(dask_worker: distributed.Worker) -> list[str]:
    return [task.state for task in dask_worker.state.tasks.values()]


def only(client: distributed.Client) -> headrace.dask.WorkerStatistics:
    (found,) = headrace.dask.statistics(client).values()
    return found


def inputs_seen(client: distributed.Client) -> int:
    return only(client).inputs_prefetched + only(client).inputs_late


EXPECTED = [factor * ROWS * (ROWS - 1) // 2 for factor in range(6)]


def test_inputs_are_moved_while_the_task_before_runs(
    client: distributed.Client, partitions: list[Partition]
) -> None:
    headrace.dask.install(client, headrace.dask.Prefetch(prefetch="on", ahead=AHEAD))
    holding = client.submit(hold, "inputs")
    futures = client.map(total, partitions)
    wait_until(lambda: only(client).inputs_prefetched == AHEAD)
    wait_until(lambda: only(client).bytes_moved >= AHEAD * 8 * ROWS)
    assert only(client).inputs_held == AHEAD
    distributed.Event("inputs", client=client).set()
    assert client.gather(futures) == EXPECTED
    assert client.gather(holding) is None
    wait_until(lambda: inputs_seen(client) == len(partitions))
    wait_until(lambda: only(client).inputs_held == only(client).bytes_cached == 0)
    assert only(client).bytes_from_copies >= AHEAD * 8 * ROWS
    headrace.dask.uninstall(client)
    assert headrace.dask.statistics(client) == {}
    assert client.submit(total, partitions[1], pure=False).result() == EXPECTED[1]


def test_tables_that_are_results_of_other_tasks_are_moved(
    client: distributed.Client, partitions: list[Partition]
) -> None:
    # Their own inputs, the partitions, would be held for a moment, too.
    tables = client.map(Partition.table, partitions)
    distributed.wait(tables)
    headrace.dask.install(client, headrace.dask.Prefetch(prefetch="on"))
    holding = client.submit(hold, "tables")
    futures = client.map(total, tables)
    wait_until(lambda: only(client).inputs_held == 4)
    wait_until(lambda: only(client).bytes_moved >= 4 * 8 * ROWS)  # A task does not wait for a move.
    distributed.Event("tables", client=client).set()
    assert client.gather(futures) == EXPECTED
    assert client.gather(holding) is None
    assert only(client).bytes_from_copies >= 4 * 8 * ROWS


def test_a_partition_that_is_not_there_fails_its_task_alone(
    client: distributed.Client, partitions: list[Partition]
) -> None:
    headrace.dask.install(client, headrace.dask.Prefetch(prefetch="on"))
    bad = client.submit(total, Partition("/nowhere.arrow"))
    lacking = client.submit(total, Partition(partitions[0].path, ("m",)))
    good = client.submit(total, partitions[2])
    with pytest.raises(headrace.IoFailedError, match=r"partition '/nowhere\.arrow'"):
        bad.result()
    with pytest.raises(headrace.IoFailedError, match="columns that it has"):
        lacking.result()
    assert good.result() == EXPECTED[2]


def test_partitions_may_be_parquet_files(client: distributed.Client, tmp_path: Path) -> None:
    headrace.dask.install(client, headrace.dask.Prefetch(prefetch="on"))
    path = str(tmp_path / "n.parquet")
    pq.write_table(pa.table({"other": ["x"] * ROWS, "n": range(ROWS)}), path)
    holding = client.submit(hold, "parquet")
    future = client.submit(total, Partition(path, ("n",)))
    wait_until(lambda: only(client).bytes_moved == 8 * ROWS)  # And not the other column.
    distributed.Event("parquet", client=client).set()
    assert future.result() == EXPECTED[1]
    assert client.gather(holding) is None
    wait_until(lambda: only(client).bytes_from_copies == 8 * ROWS)
    assert Partition(path).table().column_names == ["other", "n"]
    with pytest.raises(headrace.IoFailedError, match="columns that it has"):
        Partition(path, ("m",)).table()


def test_files_are_decoded_ahead_without_moving_anything(
    client: distributed.Client, tmp_path: Path
) -> None:
    parts = []
    for number in range(6):
        pq.write_table(pa.table({"n": [number] * ROWS}), tmp_path / f"{number}.parquet")
        parts.append(Partition(str(tmp_path / f"{number}.parquet")))
    headrace.dask.install(client, headrace.dask.Prefetch(prefetch="auto", ahead="decode"))

    def total(part: Partition) -> int:
        time.sleep(0.1)  # While the next one is decoded.
        return sum(pc.sum(batch["n"]).as_py() for batch in headrace.dask.read(part))

    found = client.gather(client.map(total, parts))
    assert found == [number * ROWS for number in range(6)]
    (worker,) = headrace.dask.statistics(client).values()
    assert worker.prefetching
    assert worker.inputs_prefetched >= 3
    wait_until(lambda: next(iter(headrace.dask.statistics(client).values())).inputs_held == 0)
    headrace.dask.install(client, headrace.dask.Prefetch(prefetch="off", ahead="decode"))
    (worker,) = headrace.dask.statistics(client).values()
    assert not worker.prefetching


def loaded(path: str) -> Any:
    return pd.read_parquet(path)


def slowly(frame: Any) -> Any:
    time.sleep(0.1)  # While the next one is decoded.
    return frame


def from_delayed(paths: list[str]) -> Any:
    parts = [dask.delayed(loaded)(path) for path in paths]
    return dd.from_delayed(parts).map_partitions(slowly).n.sum()


def summed(path: str) -> Any:
    return dask.delayed(lambda part: slowly(part).n.sum())(dask.delayed(loaded)(path))


SOURCES: dict[str, tuple[Callable[[list[str]], Any], bool]] = {
    "read_parquet": (lambda paths: dd.read_parquet(paths).map_partitions(slowly).n.sum(), False),
    "a column": (lambda paths: dd.read_parquet(paths).n.map_partitions(slowly).sum(), False),
    "from_map": (lambda paths: dd.from_map(loaded, paths).map_partitions(slowly).n.sum(), False),
    "from_delayed": (from_delayed, True),
    "delayed": (lambda paths: dask.delayed(sum)([summed(path) for path in paths]), True),
}
"""Graphs that read files, and whether a user must mark them."""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = [str(tmp_path / f"n{number}.parquet") for number in range(6)]
    for number, path in enumerate(paths):
        pq.write_table(pa.table({"n": [number] * ROWS, "other": ["x"] * ROWS}), path)
    return paths


@pytest.mark.parametrize("name", SOURCES)
def test_graphs_of_dask_read_files_ahead_as_they_are(
    client: distributed.Client, files: list[str], name: str
) -> None:
    make, is_marked = SOURCES[name]
    expected = sum(number * ROWS for number in range(6))
    headrace.dask.install(client, headrace.dask.Prefetch(ahead="decode"))
    if is_marked:  # What is not marked runs as without the plug-in.
        assert make(files).compute() == expected
        assert only(client).inputs_prefetched == 0
    graph = make(files)
    with dask.annotate(**({"ahead": "decode"} if is_marked else {})):
        assert graph.compute() == expected
    assert only(client).inputs_prefetched >= 2
    wait_until(lambda: only(client).inputs_held == 0)
    headrace.dask.uninstall(client)
    assert graph.compute() == expected


def test_frames_in_memory_have_nothing_to_be_read_ahead(
    client: distributed.Client, files: list[str]
) -> None:
    headrace.dask.install(client, headrace.dask.Prefetch(ahead="decode"))
    frame = dd.from_pandas(pd.read_parquet(files[1]), npartitions=4)
    assert frame.map_partitions(slowly).n.sum().compute() == ROWS
    assert inputs_seen(client) == 0


def test_a_file_that_is_being_read_ahead_is_read_once(
    client: distributed.Client, tmp_path: Path
) -> None:
    begun, go_on, calls = tmp_path / "begun", threading.Event(), []

    def load(number: int) -> int:
        calls.append((number, threading.current_thread().name))
        if number == 2:
            begun.touch()
            assert go_on.wait(TIME_LIMIT_S)
        return number

    waits[str(tmp_path)] = load
    headrace.dask.install(client, headrace.dask.Prefetch(ahead="decode"))
    holding = client.submit(hold, "reading")
    with dask.annotate(ahead="decode"):
        futures = client.map(waited, [str(tmp_path)] * 3, [1, 2, 3])
    wait_until(begun.exists)
    distributed.Event("reading", client=client).set()
    wait_until(lambda: "executing" in client.run(states_here).popitem()[1])
    go_on.set()
    assert client.gather([holding, *futures]) == [None, 1, 2, 3]
    assert sorted(number for number, _ in calls) == [1, 2, 3]
    assert {name for number, name in calls if number < 3} == {"headrace.dask"}


waits: dict[str, Callable[[int], int]] = {}


def waited(name: str, number: int) -> int:
    return waits[name](number)


def test_a_reading_that_fails_ahead_fails_its_task_alone(client: distributed.Client) -> None:
    headrace.dask.install(client, headrace.dask.Prefetch(ahead="decode"))
    holding = client.submit(hold, "failing")
    with dask.annotate(ahead="decode"):
        bad, good = client.map(loaded, ["/nowhere.parquet"]), client.submit(abs, -7)
    wait_until(lambda: only(client).inputs_failed == 1)
    distributed.Event("failing", client=client).set()
    with pytest.raises(FileNotFoundError):
        client.gather(bad)
    assert client.gather([holding, good]) == [None, 7]


@pytest.mark.long
def test_the_guides_graphs_of_dask_run_as_scripts(tmp_path: Path) -> None:
    text = (ROOT / "docs/guide/dask.md").read_text()
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        script = tmp_path / "guide.py"
        script.write_text(block)
        done = subprocess.run(
            [sys.executable, script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            check=True,
        )
        assert done.stdout.count(f"{8 * sum(range(100_000))}\n") == block.count(".sum(") > 0
        assert re.search(r"inputs_prefetched=[1-9]", done.stdout)


@pytest.mark.long
def test_the_gain_can_be_measured(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "dask_ahead.py"), "--rounds", "1", "--cold"]
    done = subprocess.run(
        [*command, "--rows", "1000", "--latency-ms", "20"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=True,
    )
    assert re.search(r"^ratio \d", done.stdout, re.MULTILINE)
    assert len(re.findall(r"^[1-9]\d* prefetched", done.stdout, re.MULTILINE)) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_task_waits_for_its_file_that_is_being_decoded(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = []
    begun, go_on = threading.Event(), threading.Event()

    def decode(partition: Partition) -> Any:
        decoded.append(partition)
        begun.set()
        assert go_on.wait(TIME_LIMIT_S)
        return pa.table({"n": range(ROWS)})

    monkeypatch.setattr(Partition, "table", decode)  # The worker is in this process.
    headrace.dask.install(client, headrace.dask.Prefetch(prefetch="on"))
    holding = client.submit(hold, "decode")
    future = client.submit(total, Partition("slow.parquet"))
    assert begun.wait(TIME_LIMIT_S)
    distributed.Event("decode", client=client).set()
    assert client.gather(holding) is None
    wait_until(lambda: "executing" in client.run(states_here).popitem()[1])
    go_on.set()
    assert future.result() == EXPECTED[1]
    assert len(decoded) == 1


def test_the_scheduler_is_left_alone_where_nothing_prefetches(client: distributed.Client) -> None:
    def saturation(dask_scheduler: Any) -> float:
        return float(dask_scheduler.WORKER_SATURATION)

    before = client.run_on_scheduler(saturation)
    headrace.dask.install(client, headrace.dask.Prefetch(prefetch="off"))
    assert client.run_on_scheduler(saturation) == before < headrace.dask.SATURATION
    headrace.dask.install(client, headrace.dask.Prefetch(prefetch="on"))
    assert client.run_on_scheduler(saturation) == headrace.dask.SATURATION


def test_another_inside_of_distributed_ends_prefetching_alone(
    client: distributed.Client, partitions: list[Partition], caplog: pytest.LogCaptureFixture
) -> None:
    headrace.dask.install(client, headrace.dask.Prefetch(prefetch="on"))

    def spoil(dask_worker: Any) -> None:
        dask_worker.plugins["headrace"].running.view = None

    client.run(spoil)
    assert client.gather(client.map(total, partitions)) == EXPECTED
    wait_until(lambda: not only(client).prefetching)
    assert only(client).inputs_held == 0
    assert "prefetching has ended on this worker" in caplog.text


def test_workers_that_are_restarted_prefetch_again(
    partitions: list[Partition], tmp_path: Path
) -> None:
    with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            dashboard_address=ANY_PORT,
            local_directory=str(tmp_path),
        ) as cluster,
        cluster.get_client() as client,
    ):
        headrace.dask.install(client, headrace.dask.Prefetch(prefetch="on"))
        futures = client.map(total, partitions)
        assert client.gather(futures) == EXPECTED
        wait_until(lambda: inputs_seen(client) == len(partitions))
        fresh = headrace.dask.WorkerStatistics(prefetching=True, node=only(client).node)
        client.restart()
        wait_until(lambda: list(headrace.dask.statistics(client).values()) == [fresh])
        assert client.gather(client.map(total, partitions)) == EXPECTED


def total_in_place(part: Partition) -> tuple[int, bool]:
    """The total of a partition, and whether its data is in memory of a server."""
    batch = headrace.dask.read(part).read_next_batch()
    address = batch["n"].buffers()[1].address
    with Path("/proc/self/maps").open() as maps:
        for line in maps:
            begin, end = (int(each, 16) for each in line.split()[0].split("-"))
            if begin <= address < end:
                return pc.sum(batch["n"]).as_py(), "memfd:" in line
    raise AssertionError


def serves(dask_worker: distributed.Worker) -> bool:
    return dask_worker.plugins["headrace"].running.shared._server is not None  # noqa: SLF001


def changed(frame: Any, more: int) -> Any:
    frame.loc[:, "n"] += more
    return frame


def token_here(dask_worker: distributed.Worker) -> str:
    return str(dask_worker.plugins["headrace"].token)


def test_what_was_read_for_a_task_goes_to_no_other_task() -> None:
    no_tasks = headrace.dask._View(None)  # noqa: SLF001
    decoding = headrace.dask.Prefetch(ahead="decode")
    running = headrace.dask._Running(decoding, headrace.topo(), None, no_tasks)  # noqa: SLF001

    def reading(value: int) -> Any:
        return headrace.dask._Reading(Task("read", lambda: value))  # noqa: SLF001

    try:
        for _ in range(100):
            # Its task has read by itself, and is forgotten before its end is handled.
            running._open(headrace.dask._Wanted((), 0, "first", reading(1)))  # noqa: SLF001
            assert running.take(reading(2)) == 2
    finally:
        running.close()


class Panic(BaseException):
    """As what libraries in Rust raise, such as polars."""


def test_a_reading_that_panics_ahead_is_left_to_its_task() -> None:
    no_tasks = headrace.dask._View(None)  # noqa: SLF001
    decoding = headrace.dask.Prefetch(ahead="decode")
    running = headrace.dask._Running(decoding, headrace.topo(), None, no_tasks)  # noqa: SLF001

    def panic() -> None:
        raise Panic

    try:
        reading = headrace.dask._Reading(Task("read", panic))  # noqa: SLF001
        running._open(headrace.dask._Wanted((), 0, "task", reading))  # noqa: SLF001
        with pytest.raises(Panic):
            running.take(reading)
        assert running.statistics().inputs_failed == 1
    finally:
        running.close()


def test_a_file_that_replaces_a_shared_one_is_decoded(tmp_path: Path) -> None:
    no_tasks = headrace.dask._View(None)  # noqa: SLF001
    sharing = headrace.dask.Prefetch(share="16MiB")
    running = headrace.dask._Running(sharing, headrace.topo(), None, no_tasks)  # noqa: SLF001
    path, other, found = tmp_path / "n.parquet", tmp_path / "other", []
    try:
        for number in (1, 2):
            pq.write_table(pa.table({"n": [number]}), other)
            os.utime(other, ns=(0, 0))  # Both files have the same length, too.
            other.replace(path)
            found.append(running.decoded(Partition(str(path)))["n"].to_pylist())
    finally:
        running.close()
    assert found == [[1], [2]]


@pytest.mark.alone
def test_a_text_file_that_changed_behind_its_head_is_read_again(
    client: distributed.Client, tmp_path: Path
) -> None:
    headrace.dask.install(client, headrace.dask.Prefetch(ahead="decode", share="16MiB"))
    found = []
    for number in ("1", "2"):  # Dask reads 256 kB to learn the columns, and compares them.
        (tmp_path / "n.csv").write_text("n\n" + "0\n" * 200_000 + number)
        found.append(dd.read_csv(tmp_path / "n.csv").n.sum().compute())
        # Else Dask itself, whose key is the same, gives the result that it still has.
        wait_until(lambda: client.run_on_scheduler(tasks_known) == 0)
    headrace.dask.uninstall(client)
    assert found == [1, 2]


def tasks_known(dask_scheduler: distributed.Scheduler) -> int:
    return len(dask_scheduler.tasks)


def shared(client: distributed.Client) -> dict[str, int]:
    return {name: each.inputs_shared for name, each in headrace.dask.statistics(client).items()}


@pytest.mark.alone
def test_a_worker_reads_what_another_one_has_decoded(files: list[str], tmp_path: Path) -> None:
    parts = [Partition(path, ("n",)) for path in files]
    share = f"{16 * (2 + (os.cpu_count() or 1))}MiB"  # Each client reads 8 blocks in place.
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=ANY_PORT,
            local_directory=str(tmp_path),
        ) as cluster,
        cluster.get_client() as client,
    ):
        headrace.dask.install(client, headrace.dask.Prefetch(ahead="decode", share=share))
        serving = client.run(serves)
        server = next(name for name, is_server in serving.items() if is_server)
        other = next(name for name, is_server in serving.items() if not is_server)

        def run(worker: str) -> list[Any]:
            return list(
                client.gather(client.map(total_in_place, parts, workers=[worker], pure=False))
            )

        expected = [number * ROWS for number in range(6)]
        assert [each for each, _ in run(other)] == expected
        assert shared(client) == {server: 0, other: 0}
        assert run(server) == [(each, True) for each in expected]
        assert shared(client)[server] >= len(parts)
        # A frame is copied, because tasks may change it.
        for more, worker in enumerate((server, other)):
            frame = dd.read_parquet(files).map_partitions(changed, more)
            found = client.compute(frame.n.sum(), workers=[worker]).result()
            assert found == sum(expected) + more * ROWS * len(parts)
            # Else the next worker might get what this one has read.
            wait_until(lambda: client.run_on_scheduler(tasks_known) == 0)
        assert shared(client)[other] >= len(parts)
        # The blocks are lost with their server, and are decoded again.
        client.run(os._exit, 1, workers=[server], on_error="ignore")
        assert [each for each, _ in run(other)] == expected
        wait_until(lambda: len(shared(client)) == 2)
        assert [each for each, _ in run(other)] == expected
        newcomer = next(name for name in shared(client) if name != other)
        assert run(newcomer) == [(each, True) for each in expected]
        assert shared(client)[newcomer] >= len(parts)
        assert any(client.run(serves).values())
        (token,) = set(client.run(token_here).values())
        sockets = Path(tempfile.gettempdir())
        assert len(list(sockets.glob(f"headrace-{token}*"))) == 2
    assert not list(sockets.glob(f"headrace-{token}*"))


def test_inputs_are_found_wherever_arguments_name_them(partitions: list[Partition]) -> None:
    table = pa.table({"n": [1]})
    first, second, third = partitions[:3]
    task = Task(
        "key", total, [first, {"deep": (second, 7)}], "text", last={"a": [table]}, other=third
    )
    found = list(headrace.dask._inputs_in(task))  # noqa: SLF001
    assert found == [first, second, table, third]


def test_the_plug_in_travels_with_its_options() -> None:
    plugin = headrace.dask.Prefetch(prefetch="off", ahead=2, pin=False)
    sent = pickle.loads(pickle.dumps(plugin))  # noqa: S301 - Of our own.
    assert (sent.prefetch, sent.ahead, sent.pin) == ("off", 2, False)
    with pytest.raises(headrace.InvalidArgumentError, match="use off, auto or on"):
        headrace.dask.Prefetch(prefetch="maybe")  # type: ignore[arg-type]


def test_workers_take_nodes_in_turns() -> None:
    nodes = [Node(each, "ddr", "unknown", 0, 0, (each,), None, ()) for each in (0, 2)]
    chosen = [headrace.dask._node_of(name, nodes).id for name in range(4)]  # noqa: SLF001
    assert chosen == [0, 2, 0, 2]
    assert headrace.dask._node_of("named", nodes) in nodes  # noqa: SLF001


@pytest.mark.parametrize("kind", ["arrow", pytest.param("parquet", marks=pytest.mark.long)])
def test_the_example_survives_a_killed_worker(data_directory: Path, kind: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / "dask_tpch.py"), "--kill-one"]
    command += ["--workers", "2", "--scale-factor", "0.01", "--partitions", "4", "--format", kind]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT_S,
        env={"HEADRACE_DATA": str(data_directory), "PATH": ""},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed worker process" in done.stdout
    assert "answers equal to DuckDB's: 4 of 4\nleftovers: 0" in done.stdout
    assert re.search(r" [1-9]\d* inputs prefetched", done.stdout)


BARE_WORKER = "import sys; sys.modules['headrace'] = None; "
"""Begins the program of a worker that lacks the package."""


@dataclass
class Processes:
    """A scheduler and workers, each a process of its own."""

    directory: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def scheduler_file(self) -> str:
        return str(self.directory / "scheduler.json")

    def start(self, kind: str, *arguments: str, prelude: str = "") -> subprocess.Popen[bytes]:
        program = f"{prelude}from distributed.cli.dask_{kind} import main; main()"
        command = [sys.executable, "-c", program, "--scheduler-file", self.scheduler_file]
        command += ["--host", "127.0.0.1", "--dashboard-address", ANY_PORT, *arguments]
        with (self.directory / f"{kind}.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log)
        self.started.append(process)
        return process

    def start_worker(self, prelude: str = "") -> subprocess.Popen[bytes]:
        return self.start("worker", "--no-nanny", "--nthreads", "1", prelude=prelude)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    yield made
    for each in made.started:
        each.kill()
        each.wait()


def test_a_worker_without_the_package_and_a_lost_scheduler_are_named(
    processes: Processes,
) -> None:
    scheduler = processes.start("scheduler", "--port", "0")
    bare = processes.start_worker(BARE_WORKER)
    wait_until(Path(processes.scheduler_file).exists)
    with distributed.Client(scheduler_file=processes.scheduler_file, timeout=30) as client:
        client.wait_for_workers(1, timeout=TIME_LIMIT_S)
        with pytest.raises(headrace.UnsupportedError, match=r"worker tcp://.* cannot import"):
            headrace.dask.install(client)
        bare.kill()
        wait_until(lambda: not client.scheduler_info()["workers"])
        worker = processes.start_worker()
        client.wait_for_workers(1, timeout=TIME_LIMIT_S)
        headrace.dask.install(client, headrace.dask.Prefetch(prefetch="on"))
        assert only(client).prefetching
        waiting = client.submit(time.sleep, 600, resources={"none": 1})  # No worker has it.
        scheduler.kill()
        with pytest.raises(distributed.client.FutureCancelledError, match="connection-lost"):
            waiting.result(timeout=TIME_LIMIT_S)
        assert worker.wait(TIME_LIMIT_S) is not None
