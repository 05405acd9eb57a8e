"""Bindings of libheadrace; use the package headrace instead."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy
from numpy.typing import NDArray


class Machine:
    @staticmethod
    def discover() -> Machine: ...

    @staticmethod
    def make_record() -> tuple[Machine, str]:
        """The machine and the text of its record."""

    @staticmethod
    def replay(path: str) -> Machine: ...

    def to_json(self) -> str: ...

    def has_faster_tier(self) -> bool: ...

    def faster_nodes(self, initiator: int) -> list[int]: ...

class CopyMeter:
    @staticmethod
    def make(pool_bytes: int, last_level_bytes: int, seed: int) -> CopyMeter: ...

    def measure_round(self, subjects: Sequence[str], *, bytes_min: int, bytes_max: int, temperature: str, aligned: bool, thread_count: int) -> list[float]:
        """Nanoseconds per copy of each subject, measured once each."""

    def batch_count(self) -> int: ...

    def find_cold_probe(self) -> tuple[int, int] | None:
        """Minimum and maximum ticks to load a byte from memory; None if unknown."""

    def find_wide_cost(self) -> float | None:
        """
        Factor by which a single copy through 64-byte registers is slower than one of many; None without such registers.
        """

    def use_cold_probe(self, ticks_min: int, ticks_max: int) -> None:
        """Ticks by which a subject of two variants chooses between them."""

def copy_variants(byte_count: int) -> list[str]:
    """The search grid for copies of at least this many bytes."""

def check_copy_variant(text: str) -> None: ...

def copy_machine_text() -> str:
    """This machine, as profiles identify it."""

def empty_copy_profile() -> str:
    """A profile of this machine without classes."""

def use_copy_profile(text: str) -> None:
    """Use this profile for copies."""

def use_copy_profile_file(path: str) -> None:
    """Use the profile in this file for copies; errors name the file."""

def use_no_copy_profile() -> None: ...

def default_copy_profile_path() -> str: ...

def use_default_copy_profile() -> tuple[bool, str, str]:
    """Whether the profile of this user is used, its path, and a sentence."""

class KernelMeter:
    """Measures fills or comparisons."""

    @staticmethod
    def make(pool_bytes: int, fills: bool, seed: int) -> KernelMeter: ...

    def kernels(self) -> list[str]:
        """Names of the kernels that run on this machine."""

    def measure_round(self, subjects: Sequence[str], *, bytes_min: int, bytes_max: int, temperature: str, aligned: bool, thread_count: int) -> list[float]:
        """Nanoseconds per call of each subject, measured once each."""

    def batch_count(self) -> int: ...

def policy_names() -> list[str]:
    """Names of the mover policies."""

def explain_device_status(status: int) -> str:
    """Meaning and remedy of a status byte of a device."""

def explain_cause(name: str) -> str:
    """Meaning and remedy of a cause; empty if unknown."""

class Engine:
    def submit(self, operation: object, options: object, after: Sequence[Job], then: object | None) -> Job: ...

    def submit_batch(self, operations: Sequence[object], options: object, after: Sequence[Job], then: object | None) -> Job: ...

    def run(self, operation: object, options: object, after: Sequence[Job]) -> dict[str, Any]: ...

    def copy(self, operation: object) -> dict[str, Any]: ...

    @staticmethod
    def make(machine: Machine, *, threads_per_node: int, nodes: Sequence[int], path: str, queues: Sequence[str] | None, policy: str | None, page_faults: str, device_timeout_ns: int, thresholds: object | None, piece_bytes: int, queue_depth_max: int, waiting: str, check_memory: bool) -> Engine: ...

    def close(self) -> None: ...

    def poll(self) -> None: ...

    def movers(self) -> list[dict[str, Any]]:
        """Fields of headrace.MoverInfo."""

    def notes(self) -> list[str]: ...

    def waiting(self) -> str: ...

    def thresholds(self) -> dict[str, Any]:
        """Fields of headrace.Thresholds."""

    def statistics(self) -> dict[str, Any]:
        """
        Fields of headrace.EngineStatistics; operations: headrace.OperationStatistics by kind.
        """

    def device_statistics(self) -> list[dict[str, int]]:
        """Counts of each of movers()."""

class Job:
    def poll(self) -> bool: ...

    def wait(self, time_ns_max: int | None) -> bool: ...

    def stop(self) -> None: ...

    def state(self) -> str: ...

    def completion(self) -> dict[str, Any]:
        """Fields of headrace.Completion of a completed job."""

    def completions(self) -> list[dict[str, Any]]:
        """The same for each operation of a completed batch."""

class Channel:
    @staticmethod
    def open(engine: Engine, queue: str, node: int | None, depth: int, latencies: bool) -> Channel: ...

    def submit(self, operation: object) -> int:
        """The number of a ticket."""

    def poll(self, number: int) -> dict[str, Any] | None: ...

    def wait(self, number: int) -> dict[str, Any]: ...

    def close(self) -> None: ...

    def in_flight(self) -> int: ...

    def depth(self) -> int: ...

    def queue(self) -> str: ...

class Exporter:
    pass

class Entry:
    def wait(self) -> None: ...

    def try_wait(self) -> bool: ...

    def changed(self) -> bool: ...

    def cached(self) -> bool: ...

    def node(self) -> int | None: ...

    def view(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', writable=False)]: ...

class Change:
    def end(self) -> None: ...

    def cached(self) -> bool: ...

    def view(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C')]: ...

class Cache:
    @staticmethod
    def make(machine: Machine, engine: Engine, *, capacity_bytes: int, placement: int | str | Mapping[int, Sequence[int]], eviction: str, recycle: bool, huge_pages: bool, event_count_max: int, mover: object | None, into_cache: bool) -> Cache: ...

    def access(self, source: object, hint: int | str | None, weak: bool) -> Entry: ...

    def access_many(self, sources: Sequence[object], hint: int | str | None) -> list[Entry]: ...

    def change(self, source: object, hint: int | str | None) -> Change: ...

    def write_back(self, entry: Entry | None) -> int: ...

    def pin(self, source: object, pinned: bool) -> int: ...

    def take_events(self) -> tuple[list[dict[str, Any]], int]:
        """Fields of headrace.CacheEvent, and the number of lost events."""

    def flush(self, node: int | None) -> int: ...

    def invalidate(self, source: object) -> int: ...

    def forget(self, address: int, byte_count: int) -> None: ...

    def clear(self) -> int: ...

    def close(self) -> None: ...

    def statistics(self) -> dict[str, int]: ...

class RingProducer:
    @staticmethod
    def attach(path: str, granularity: str | None, flush: str | None, prefault: bool) -> RingProducer: ...

    def enqueue(self, entries: list[Any]) -> str:
        """Outcome: done, full, too_large or lost."""

    def next_ordinal(self) -> int: ...

    def entry_bytes_max(self) -> int: ...

    def close(self) -> None: ...

    def note(self) -> str: ...

    def is_persistent_memory(self) -> bool: ...

    def recovered(self) -> dict[str, Any]: ...

class RingConsumer:
    @staticmethod
    def attach(path: str, granularity: str | None, flush: str | None, lazy: bool, prefault: bool) -> RingConsumer: ...

    def next(self) -> tuple[str, int, bytes]:
        """Outcome (entry, empty, damaged or lost), ordinal and a copy."""

    def acknowledge(self) -> None: ...

    def close(self) -> None: ...

    def note(self) -> str: ...

    def is_persistent_memory(self) -> bool: ...

    def recovered(self) -> dict[str, Any]: ...

def make_ring(path: str, capacity_bytes: int) -> None: ...

def inspect_ring(path: str) -> dict[str, Any]: ...

def salvage_ring(path: str) -> dict[str, Any]:
    """Fields of headrace.pmem.Salvage."""

class MessageProducer:
    def send(self, message: object, wait_ns: int) -> str: ...

    def send_all(self, messages: list[Any]) -> tuple[str, int]: ...

    def place(self, placement: str) -> None: ...

    def wait(self, byte_count: int, wait_ns: int) -> str: ...

    def close(self) -> None: ...

class MessageConsumer:
    def receive(self, wait_ns: int) -> tuple[str, bytes | None]: ...

    def receive_into(self, target: object, wait_ns: int) -> tuple[str, int]: ...

    def wait(self, wait_ns: int) -> str: ...

    def close(self) -> None: ...

class MessageQueue:
    @staticmethod
    def make(path: str | None, *, fixed: bool, message_bytes: int, capacity_bytes: int, producers_max: int, permissions: int) -> MessageQueue: ...

    @staticmethod
    def open(path: str, owner: int | None) -> MessageQueue: ...

    @staticmethod
    def from_descriptor(descriptor: int, owner: int | None) -> MessageQueue: ...

    def descriptor(self) -> int: ...

    def state(self) -> dict[str, Any]: ...

    def producer(self) -> MessageProducer: ...

    def consumer(self) -> MessageConsumer: ...

    def end(self) -> None: ...

    def close(self) -> None: ...

class StoreTransfer:
    def poll(self) -> bool: ...

    def wait(self, time_ns_max: int | None) -> bool: ...

    def outcomes(self) -> list[str]:
        """Of a transfer that has ended."""

    def byte_counts(self) -> list[int]:
        """Of a transfer that has ended."""

    def all_done(self) -> bool: ...

class BlockStore:
    @staticmethod
    def make(engine: Engine, *, block_bytes: int, tiers: Sequence[tuple[int, int | None, str, str, str]], checksums: bool, promote_after: int, inline_max: int) -> BlockStore: ...

    def put(self, keys: list[Any], sources: list[Any], tier: int) -> StoreTransfer: ...

    def get(self, keys: list[Any], targets: list[Any]) -> StoreTransfer: ...

    def length(self, key: object | None) -> int | None: ...

    def pin(self, key: object | None) -> bool: ...

    def unpin(self, key: object | None) -> bool: ...

    def remove(self, key: object | None) -> bool: ...

    def clear(self) -> int: ...

    def keys(self) -> list[bytes]: ...

    def statistics(self) -> dict[str, Any]: ...

    def descriptor(self) -> int: ...

    def reap(self) -> None: ...

    def close(self) -> None: ...

def explain_outcome(outcome: str) -> str: ...

TELEMETRY_DIRECTORY: str = '/dev/shm'

def read_telemetry(directory: str) -> dict[str, Any]: ...

def start_telemetry(interval_ns: int, directory: str) -> None: ...

def stop_telemetry() -> None: ...

def start_trace(path: str) -> None: ...

def stop_trace() -> None: ...

class Table:
    @staticmethod
    def import_stream(capsule: object, rows_per_chunk: int) -> Table: ...

    def row_count(self) -> int: ...

    def chunk_count(self) -> int: ...

    def chunk_rows(self, chunk_index: int) -> int: ...

    def movable_bytes(self, column: int) -> int: ...

    def is_movable(self, column: int) -> bool: ...

    def addresses(self, column: int) -> list[tuple[int, int]]:
        """Address and length of each region."""

    def stream(self, columns: Sequence[int]) -> object:
        """A capsule of an Arrow stream over the source."""

    def leave(self, cache: Cache) -> None:
        """Drops the copies of the table, so that it can be freed."""

class Prefetcher:
    def __init__(self, cache: Cache, scans: Sequence[tuple[Table, Sequence[int], Sequence[int], Sequence[bool]]], wait: bool) -> None: ...

    def stream(self, table: Table, columns: Sequence[int]) -> object:
        """A capsule of an Arrow stream over the copies that exist."""

    def expects(self, table: Table, columns: Sequence[int]) -> bool: ...

    def finish(self) -> None: ...

    def stop(self) -> None: ...

    def events(self) -> list[tuple[str, int, int, int, int]]: ...

    def statistics(self) -> dict[str, Any]: ...

def node_of_address(address: int) -> int | None:
    """Node that the page of an address lies on; None if that is not known."""

def node_memory(byte_count: int, node: int) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
    """Memory on a node, with its pages present."""

def version() -> str: ...

def parse_bytes(text: str) -> int:
    """Number of bytes that a text such as '64KiB' means."""

def bytes_text(byte_count: int) -> str:
    """Text such as '1.5 MiB'."""
