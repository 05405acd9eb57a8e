# SPDX-License-Identifier: Apache-2.0
"""Dask with prefetching: each worker moves the inputs of its next tasks before they run.

The task graph is the plan. A `distributed` plug-in observes which tasks the scheduler assigned to a
worker, finds `Partition`s and Arrow tables in their arguments, and lets an engine copy them to the
nearest fast memory. A task reads them by `read`: from copies that are ready, else from the source,
so results do not depend on prefetching. With ``ahead="decode"`` the worker also runs the functions
of the next tasks that read files, such as those of `dask.dataframe.read_parquet`. With ``share``
each file is decoded once per host, and kept in a store of its workers.

Example:
    with distributed.LocalCluster(n_workers=4) as cluster, cluster.get_client() as client:
        headrace.dask.install(client)
        parts = [headrace.dask.Partition(path, ("price",)) for path in paths]
        futures = client.map(lambda part: total(headrace.dask.read(part)), parts)
"""

import asyncio
import functools
import heapq
import importlib
import itertools
import logging
import os
import queue
import secrets
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from headrace import _core
from headrace._arguments import PrefetchMode, byte_count, prefetch_mode, whole_number
from headrace._arrow_source import reader_of
from headrace._extras import missing_package
from headrace._shared_results import SharedResults
from headrace.cache import Cache
from headrace.engine import Engine
from headrace.errors import Error, IoFailedError, UnsupportedError
from headrace.machine import Machine, Node, topo
from headrace.table import Table

try:
    import distributed
    from dask._task_spec import GraphNode, Task
except ModuleNotFoundError as _problem:
    raise missing_package("prefetch for Dask", _problem) from _problem

__all__ = [
    "Partition",
    "Prefetch",
    "WorkerStatistics",
    "install",
    "read",
    "statistics",
    "uninstall",
]

SATURATION = 3.0
"""Root tasks per worker thread that the scheduler assigns; Dask's default 1.1 shows one ahead.

A waiting task holds the memory of its arguments. Tasks with inputs on a worker are assigned there
without limit, with or without the plug-in.
"""

_NAME = "headrace"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Partition:
    """An Arrow IPC or Parquet file, or some columns of it, as an argument of tasks.

    All workers must be able to read the file, which must not change meanwhile.

    Attributes:
        path: The file. One that ends in '.parquet' is decoded, by the prefetcher ahead of its task.
            Others are mapped, so that only the parts read take memory, unless they are compressed.
        columns: Names of the columns, in this order; empty: all.
    """

    path: str
    columns: tuple[str, ...] = ()

    def table(self) -> Any:
        """Map or decode the file, without prefetching.

        Raises:
            IoFailedError: It cannot be read, or lacks a column.
        """
        try:
            if self.path.endswith(".parquet"):
                # Tasks read files in parallel, so one file needs no further threads.
                columns = list(self.columns) or None
                return pq.read_table(self.path, columns=columns, use_threads=False)
            with pa.memory_map(self.path) as file:
                whole = pa.ipc.open_file(file).read_all()
            return whole.select(list(self.columns)) if self.columns else whole
        except (pa.ArrowException, OSError, KeyError) as problem:
            raise IoFailedError(
                f"read the partition '{self.path}'",
                str(problem).splitlines()[0],
                "name an Arrow IPC or Parquet file that this worker sees, and columns that it has",
                getattr(problem, "errno", None) or 0,
            ) from problem


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """Totals of a worker since its plug-in started.

    Attributes:
        node: The node that the worker is pinned to; None if not pinned.
        prefetching: Whether it opens inputs ahead; see `Prefetch`. After a failure, the worker's
            log has the reason.
        inputs_prefetched: Inputs whose moves started before their task.
        inputs_late: Inputs whose task started first.
        inputs_failed: Inputs that could not be opened; their tasks raise the error.
        inputs_held: Inputs that are open now.
        inputs_shared: Inputs that another worker of the host had decoded.
        bytes_from_copies: Bytes that tasks read from copies.
        bytes_from_source: Bytes of prefetched inputs that tasks read from the source.
        bytes_moved: Bytes of completed moves.
        bytes_cached: Bytes of the present copies.
    """

    node: int | None = None
    prefetching: bool = False
    inputs_prefetched: int = 0
    inputs_late: int = 0
    inputs_failed: int = 0
    inputs_held: int = 0
    inputs_shared: int = 0
    bytes_from_copies: int = 0
    bytes_from_source: int = 0
    bytes_moved: int = 0
    bytes_cached: int = 0


def read(data: object) -> Any:
    """Return a `pyarrow.RecordBatchReader` over an input of the running task.

    It reads copies that are ready. Outside of a task, and on workers without the plug-in, it reads
    the source.

    Args:
        data: The `Partition` or `pyarrow.Table` passed to the task.

    Raises:
        IoFailedError: The partition cannot be read.
    """
    running = _running_here()
    reader = None if running is None else running.read(data)
    if reader is not None:
        return reader
    table = _decoding(data)[1]() if running is None else running.decoded(data)
    return pa.RecordBatchReader.from_stream(table)


def install(client: distributed.Client, plugin: "Prefetch | None" = None) -> None:
    """Install the plug-in on all workers of a cluster, including those that join later.

    If any prefetches, the scheduler also assigns `SATURATION` root tasks per worker thread.

    Raises:
        UnsupportedError: A worker cannot import headrace.
    """
    found = client.run(importlib.import_module, "headrace.dask", on_error="return")
    for address, answer in found.items():
        # A worker that does not answer is leaving the cluster.
        if isinstance(answer, BaseException) and not isinstance(answer, OSError):
            raise UnsupportedError(
                "prefetch for Dask",
                f"the worker {address} cannot import headrace.dask ({answer})",
                "run 'pip install headrace[dask]' in the environment of every worker",
            ) from answer
    client.register_plugin(Prefetch() if plugin is None else plugin, name=_NAME)
    if any(each.prefetching for each in statistics(client).values()):
        _see_ahead(client)


def uninstall(client: distributed.Client) -> None:
    """Stop prefetching on all workers and drop their copies; tasks continue from the source."""
    client.unregister_worker_plugin(_NAME)


def statistics(client: distributed.Client) -> dict[str, WorkerStatistics]:
    """Return the statistics of each worker, by its address.

    Workers without the plug-in, or that do not answer, are left out.
    """
    found = client.run(_statistics_here, on_error="ignore")
    return {address: each for address, each in found.items() if each is not None}


class Prefetch(distributed.WorkerPlugin):  # type: ignore[misc] # distributed has types of its own.
    """A `distributed` worker plug-in with an engine and a cache on each worker.

    If several nodes have processors, workers in separate processes are pinned to them round-robin.

    Threading: confined to the worker's event loop; a separate thread does the work.
    """

    name = _NAME

    def __init__(
        self,
        *,
        prefetch: PrefetchMode = "auto",
        capacity: int | str = "256MiB",
        ahead: int | Literal["decode"] = 4,
        pin: bool = True,
        share: bool | int | str = False,
    ) -> None:
        """Choose how workers prefetch.

        Args:
            prefetch: "on"; "off"; or "auto": on if some memory is faster than the processors' local
                memory. Without faster memory, "on" copies within the same memory, for no gain.
            capacity: Bytes of copies per worker, in addition to the memory that Dask counts.
            ahead: Inputs per worker that are open or being moved at the same time; or "decode":
                four, whose files are read and decoded ahead also where nothing is moved, by
                functions of Dask, of `dask.dataframe.from_map`, and of tasks annotated by
                ``dask.annotate(ahead="decode")``. They run in a thread that is no task's.
            pin: Pin workers to nodes.
            share: Bytes of decoded inputs that the workers of each host share; True: `capacity`.
                One of them serves the store. Shares the tables of Parquet `Partition`s, which are
                read in place, and what ``ahead="decode"`` reads by functions of Dask and of
                `dask.dataframe.from_map`, which is copied. These must return the same each time.

        Raises:
            InvalidArgumentError: The mode is unknown, or `share` is too little.
        """
        self.prefetch = prefetch_mode(prefetch)
        self.capacity = capacity
        self.ahead: int | Literal["decode"] = (
            "decode" if ahead == "decode" else whole_number(ahead, "prefetch for Dask", 1)
        )
        self.pin = pin
        wanted = capacity if share is True else share
        self.share: int = byte_count(wanted, "share inputs", 16 << 20) if wanted else 0
        self.token: str = secrets.token_hex(8)
        """Distinguishes the stores of clusters."""
        self.running: _Running | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        names = ("prefetch", "capacity", "ahead", "pin", "share")
        options = {name: getattr(self, name) for name in names}
        return functools.partial(Prefetch, **options), (), {"token": self.token}

    def setup(self, worker: distributed.Worker) -> None:
        """Start on a worker; called by Dask."""
        machine = topo()
        node = _pin(worker, machine) if self.pin else None
        self.running = _Running(self, machine, node, _View(worker))

    async def teardown(self, worker: distributed.Worker) -> None:
        """Stop on a worker; called by Dask."""
        del worker
        running, self.running = self.running, None
        if running is not None:
            await asyncio.to_thread(running.close)

    def transition(self, key: Any, start: str, finish: str, **_options: Any) -> None:
        """Queue a change of a task's state; called by Dask in its event loop, so must not block."""
        del start
        running = self.running
        # Waking the thread needlessly would take the GIL from the tasks.
        if running is None or not running.is_looking_ahead:
            return
        if finish == "waiting" and running.is_decoding:
            running.view.serve(key, running.take)
        running.events.put((key, finish))


_DECODED = 4


@dataclass
class _Input:
    """An open input, or the result of a `_Reading`, and the tasks that will read it."""

    table: Any
    prefetcher: _core.Prefetcher | None
    keys: set[Any]

    def add_bytes_read(self, totals: dict[str, int]) -> None:
        """Add the bytes read from copies, and from the source."""
        if self.prefetcher is None:
            return
        found = self.prefetcher.statistics()
        columns = [each for scan in found["scans"] for each in scan["columns"]]
        for name in ("bytes_from_copies", "bytes_from_source"):
            totals[name] += sum(each[name] for each in (*columns, found["unplanned"]))


@dataclass(eq=False, slots=True)
class _Reading:
    """A function of a task that reads its data."""

    run: Task


@dataclass(order=True)
class _Wanted:
    """An input that is not open yet, ordered by the priority of its task."""

    priority: tuple[float, ...]
    number: int
    key: Any = field(compare=False)
    data: Any = field(compare=False)


class _Running:
    """Prefetches on one worker, in a separate thread.

    Threading: shared. `inputs`, `opening` and the totals are guarded by `lock`; `wanted` and
    `by_key` belong to the thread.
    """

    def __init__(
        self, options: Prefetch, machine: Machine, node: int | None, view: "_View"
    ) -> None:
        self.events: queue.SimpleQueue[tuple[Any, str] | None] = queue.SimpleQueue()
        self.options = options
        self.node = node
        self.view = view
        self.lock: threading.Lock = threading.Lock()
        self.opened: threading.Condition = threading.Condition(self.lock)
        """Notified when `opening` changes."""
        self.opening: object = None
        """Identity of the input that the thread is opening."""
        self.inputs: dict[Any, _Input] = {}
        self.wanted: list[_Wanted] = []
        self.by_key: dict[Any, set[Any]] = {}
        self.totals: dict[str, int] = dict.fromkeys(asdict(WorkerStatistics()), 0)
        self.numbers: Iterator[int] = itertools.count()
        self.has_failed: bool = False
        self.engine: Engine | None = None
        self.cache: Cache | None = None
        self.shared: SharedResults | None = None
        has_faster = machine.has_faster_node()
        if options.share:
            try:
                self.shared = SharedResults(options.token, options.share)
            except Error:
                _log.exception("this worker shares no inputs")
        if options.prefetch == "on" or (options.prefetch == "auto" and has_faster):
            self.engine = Engine(machine, nodes=[] if node is None else [node])
            self.cache = Cache(
                self.engine,
                options.capacity,
                "fastest" if has_faster else "local",
                recycle=True,
            )
        self.is_decoding: bool = options.ahead == "decode" and options.prefetch != "off"
        self.is_looking_ahead: bool = self.is_decoding or self.cache is not None
        self.ahead: int = options.ahead if options.ahead != "decode" else _DECODED
        self.thread: threading.Thread = threading.Thread(
            target=self._run, name="headrace.dask", daemon=True
        )
        self.thread.start()

    def read(self, data: object) -> Any:
        """A reader of an open input; None if it is not open."""
        identity = _identity(data)
        with self.lock:
            # Waiting is cheaper than decoding the same file twice.
            self.opened.wait_for(lambda: self.opening != identity)
            found = self.inputs.get(identity)
            if found is None:
                return None
            if found.prefetcher is None:
                return pa.RecordBatchReader.from_stream(found.table.arrow)
            native = found.table.native()
            columns = list(range(len(found.table.column_names)))
            capsule = found.prefetcher.stream(native, columns)
        return reader_of(capsule)

    def take(self, reading: _Reading) -> Any:
        """The result of a function that the thread has run, or is running; else runs it."""
        with self.lock:
            self.opened.wait_for(lambda: self.opening != reading)
            found = self.inputs.pop(reading, None)
        return self.decoded(reading) if found is None else found.table

    def decoded(self, data: object) -> Any:
        """The table of an input, or the result of a `_Reading`."""
        name, decode = _decoding(data)
        return decode() if self.shared is None else self.shared.result(name, decode)

    def statistics(self) -> WorkerStatistics:
        """The totals, including open inputs."""
        with self.lock:
            totals = dict(self.totals)
            for each in self.inputs.values():
                each.add_bytes_read(totals)
            totals["inputs_held"] = len(self.inputs)
            if self.cache is not None:
                cached = self.cache.statistics
                totals["bytes_moved"] = cached.bytes_moved
                totals["bytes_cached"] = cached.bytes_cached
            if self.shared is not None:
                totals["inputs_shared"] = self.shared.of_others
        known = {"node": self.node, "prefetching": self.is_looking_ahead and not self.has_failed}
        return WorkerStatistics(**{**totals, **known})  # type: ignore[arg-type]

    def close(self) -> None:
        """Stop the thread and release everything."""
        self.events.put(None)
        self.thread.join()
        self._end_all()
        with self.lock:
            cache, self.cache = self.cache, None
        for each in (cache, self.shared, self.engine):
            if each is not None:
                each.close()

    def _run(self) -> None:
        while True:
            has_work = bool(self.wanted) and len(self.inputs) < self.ahead
            try:
                # Events first: they may make an input unnecessary.
                event = self.events.get(block=not has_work)
            except queue.Empty:
                self._open(heapq.heappop(self.wanted))
                continue
            if event is None:
                return
            if self.has_failed:
                continue
            try:
                self._handle(*event)
            except Exception:  # noqa: BLE001 - Other versions of distributed may raise anything.
                _log.exception("prefetching has ended on this worker; its tasks read the source")
                self._end_all()
                self.wanted.clear()
                self.has_failed = True

    def _handle(self, key: object, state: str) -> None:
        if state in {"waiting", "constrained", "ready"}:
            self._expect(key)
        elif state in {"executing", "long-running"}:
            self._begin(key)
        else:
            self._end(key)

    def _expect(self, key: object) -> None:
        """Queue the inputs of a task; a waiting task may have more inputs once it is ready."""
        priority, found = self.view.inputs_of(key)
        known = self.by_key.setdefault(key, set())
        for data in found:
            if (identity := _identity(data)) in known:
                continue
            known.add(identity)
            with self.lock:
                if (there := self.inputs.get(identity)) is not None:
                    there.keys.add(key)
                    continue
            heapq.heappush(self.wanted, _Wanted(priority, next(self.numbers), key, data))

    def _begin(self, key: object) -> None:
        """Dequeue the inputs of a running task, which reads them itself."""
        late = self._forget(key)
        with self.lock:
            self.totals["inputs_late"] += late

    def _end(self, key: object) -> None:
        """Close the inputs that no other queued task will read."""
        self._forget(key)
        for identity in self.by_key.pop(key, ()):
            with self.lock:
                found = self.inputs.get(identity)
                if found is None:
                    continue
                found.keys.discard(key)
                if found.keys:
                    continue
                del self.inputs[identity]
                found.add_bytes_read(self.totals)
            if found.prefetcher is not None and self.cache is not None:
                found.prefetcher.stop()
                found.table.leave(self.cache)

    def _end_all(self) -> None:
        for key in list(self.by_key):
            self._end(key)

    def _forget(self, key: object) -> int:
        """Dequeue all inputs of a task. Returns their number."""
        left = [each for each in self.wanted if each.key != key]
        forgotten = len(self.wanted) - len(left)
        if forgotten:
            heapq.heapify(left)
            self.wanted = left
        return forgotten

    def _open(self, wanted: _Wanted) -> None:
        identity = _identity(wanted.data)
        with self.lock:
            there = self.inputs.get(identity)
            if there is not None:
                there.keys.add(wanted.key)
                return
            self.opening = identity
        opened = None
        with suppress(BaseException):  # Also panics of Rust: the task opens it again and raises.
            opened = self._opened(wanted.data, wanted.key)
        with self.lock:
            self.opening = None
            self.opened.notify_all()
            if opened is None:
                self.totals["inputs_failed"] += 1
            else:
                self.totals["inputs_prefetched"] += 1
                self.inputs[identity] = opened

    def _opened(self, data: Any, key: object) -> _Input:
        if isinstance(data, _Reading):
            return _Input(self.decoded(data), None, {key})
        table = Table(self.decoded(data))
        started = None
        if self.cache is not None:
            columns = list(range(len(table.column_names)))
            plan = [(table.native(), list[int](), columns, list[bool]())]
            started = _core.Prefetcher(self.cache.native(), plan)
        return _Input(table, started, {key})


def _identity(data: object) -> object:
    return data if isinstance(data, (Partition, _Reading)) else id(data)


def _decoding(data: Any) -> tuple[object, Callable[[], Any]]:
    """The name of an input among shared ones, None if it is not shared; and how to decode it."""
    if isinstance(data, _Reading):
        # Others than Dask's keys may be the user's. That of a CSV block has its file's time.
        keys = [each.key for each in (data.run, *data.run.args) if isinstance(each, Task)]
        return keys if _is_producer(data.run) else None, data.run
    if not isinstance(data, Partition):
        return None, lambda: data
    with suppress(OSError):
        if data.path.endswith(".parquet"):
            known = Path(data.path).stat()
            # Not the time of modification: a file that replaces this one may keep it.
            return (data, known.st_ino, known.st_ctime_ns, known.st_size), data.table
    return None, data.table


# Everything below depends on internals of distributed, which may differ between versions.


class _View:
    """A worker's view of its tasks, read from another thread."""

    def __init__(self, worker: distributed.Worker) -> None:
        self._worker = worker

    def inputs_of(self, key: object) -> tuple[tuple[float, ...], list[Any]]:
        """The priority of a task (lowest runs first), and its inputs that are on this worker."""
        task = self._worker.state.tasks.get(key)
        if task is None:
            return (), []
        found = list(_inputs_in(task.run_spec))
        # Do not load spilled data: that is up to the worker.
        data = getattr(self._worker.data, "fast", self._worker.data)
        for dependency in tuple(task.dependencies):
            found += _inputs_in(data.get(dependency.key))
        return tuple(task.priority or ()), found

    def serve(self, key: object, take: Callable[[_Reading], Any]) -> None:
        """Let a task ask `take` for what its reading functions return.

        Only the worker's copy of the task is replaced; the graph of the user stays as it is.
        """
        task = self._worker.state.tasks[key]
        spec = task.run_spec
        served = {each.key: Task(each.key, take, _Reading(each)) for each in _readings_in(task)}
        if served and spec.has_subgraph():
            inner, *others = spec.args
            task.run_spec = Task(spec.key, spec.func, {**inner, **served}, *others)
        elif served:
            task.run_spec = served[spec.key]


def _readings_in(task: Any) -> list[Task]:
    """Functions of a task that read data, and need nothing of other tasks.

    Dask marks those of `dask.dataframe` and of arrays. Those with inputs that `read` serves are
    left out: these are opened ahead.
    """
    spec, marks = task.run_spec, task.annotations or {}
    if not isinstance(spec, Task) or "executor" in marks:  # It may be another process.
        return []
    is_marked = marks.get("ahead") == "decode"
    parts = spec.args[0].values() if spec.has_subgraph() else [spec]
    return [
        each
        for each in parts
        if isinstance(each, Task)
        and not (each.dependencies or each.is_coro)
        and (is_marked or _is_producer(each))
        and next(_inputs_in(each), None) is None
    ]


def _is_producer(task: Task) -> bool:
    return task.data_producer or any(
        isinstance(each, Task) and _is_producer(each) for each in task.args
    )


def _inputs_in(value: object) -> Iterator[Any]:
    """Partitions and tables in the arguments of a task, including nested ones."""
    if isinstance(value, (Partition, pa.Table, _Reading)):
        yield value
        return
    parts: Iterable[Any] = ()
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = value
    elif isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, GraphNode):
        names = ("args", "kwargs", "value")
        parts = (getattr(value, name, None) for name in names)
    for each in parts:
        yield from _inputs_in(each)


def _running_here() -> _Running | None:
    """The prefetcher of the worker that runs the calling task."""
    with suppress(ValueError):
        return _running_on(distributed.get_worker())
    return None


def _running_on(worker: distributed.Worker) -> _Running | None:
    plugin = worker.plugins.get(_NAME)
    return plugin.running if isinstance(plugin, Prefetch) else None


def _statistics_here(dask_worker: distributed.Worker) -> WorkerStatistics | None:
    running = _running_on(dask_worker)
    return None if running is None else running.statistics()


def _see_ahead(client: distributed.Client) -> None:
    saturation = SATURATION

    # Nested, so that it is pickled by value and not as the name of a private function.
    def see_ahead(dask_scheduler: Any) -> None:
        dask_scheduler.WORKER_SATURATION = max(dask_scheduler.WORKER_SATURATION, saturation)

    client.run_on_scheduler(see_ahead)


def _pin(worker: distributed.Worker, machine: Machine) -> int | None:
    """Pin all threads of a worker's process to a node; threads they start inherit it."""
    nodes = [node for node in machine.nodes if node.cpus]
    if worker.nanny is None or len(nodes) < 2:  # noqa: PLR2004 - Other workers share the process.
        return None
    node = _node_of(worker.name, nodes)
    for thread in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), node.cpus)
        except ProcessLookupError:
            continue  # The thread has ended.
    return node.id


def _node_of(name: object, nodes: list[Node]) -> Node:
    """The node of a worker: round-robin for numbered workers, else by its name."""
    number = name if isinstance(name, int) else zlib.crc32(str(name).encode())
    return nodes[number % len(nodes)]
