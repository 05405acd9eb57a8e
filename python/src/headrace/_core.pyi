"""Bindings of libheadrace; use the package headrace instead."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy
import numpy.typing
from numpy.typing import NDArray


class Machine:
    @staticmethod
    def discover() -> Machine: ...

    @staticmethod
    def record(path: str) -> Machine: ...

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

def copy_variants(byte_count: int) -> list[str]:
    """The grid for copies of so many bytes and more."""

def check_copy_variant(text: str) -> None: ...

def copy_machine_text() -> str:
    """This machine, as far as profiles care."""

def empty_copy_profile() -> str:
    """A profile of this machine without classes."""

def use_copy_profile(text: str) -> None:
    """Let copies be made as this profile says."""

def load_copy_profile(path: str) -> str:
    """Read a profile and write its machine and classes as JSON."""

def use_no_copy_profile() -> None: ...

def default_copy_profile_path() -> str: ...

def use_default_copy_profile() -> tuple[bool, str, str]:
    """Whether the profile of this user is used, its path, and a sentence."""

class Job:
    def poll(self) -> bool: ...

    def wait(self) -> None: ...

    def stop(self) -> None: ...

    def completion(self) -> tuple[str, str, bool, bool, int, int, int, int, bool, int, int]:
        """Fields of headrace.Completion, of a job that has ended."""

class Engine:
    @staticmethod
    def make(machine: Machine, threads_per_node: int, nodes: Sequence[int], path: str) -> Engine: ...

    def submit(self, kind: str, target: object | None, source: object | None, second_source: object | None, number: int, path: str | None) -> Job: ...

    def run(self, kind: str, target: object | None, source: object | None, second_source: object | None, number: int, path: str | None) -> tuple[str, str, bool, bool, int, int, int, int, bool, int, int]: ...

    def copy(self, source: object, target: object) -> tuple[str, str, bool, bool, int, int, int, int, bool, int, int]: ...

    def close(self) -> None: ...

    def movers(self) -> list[tuple[str, int | None, bool, str]]:
        """Name, node, whether it is a device, and note of each."""

    def notes(self) -> list[str]: ...

    def statistics(self) -> dict[str, int]: ...

    def device_statistics(self) -> list[dict[str, int]]:
        """One for each of movers()."""

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
    def make(machine: Machine, engine: Engine, capacity_bytes: int, placement: int | str, eviction: str, recycle: bool, huge: bool, event_count_max: int) -> Cache: ...

    def access(self, source: object, hint: int | str | None, weak: bool) -> Entry: ...

    def change(self, source: object, hint: int | str | None) -> Change: ...

    def write_back(self, entry: Entry | None) -> int: ...

    def pin(self, source: object, pinned: bool) -> int: ...

    def take_events(self) -> tuple[list[tuple[str, int, int, int | None]], int]: ...

    def flush(self, node: int | None) -> int: ...

    def invalidate(self, address: int, byte_count: int) -> int: ...

    def clear(self) -> int: ...

    def close(self) -> None: ...

    def statistics(self) -> dict[str, int]: ...

def run_q6(machine: Machine, cache: Cache | None, ship_date: numpy.typing.NDArray[numpy.int32], discount: numpy.typing.NDArray[numpy.int64], quantity: numpy.typing.NDArray[numpy.int64], extended_price: numpy.typing.NDArray[numpy.int64], *, prefetch: str, chunk_bytes: int, thread_count: int, record_timeline: bool) -> dict[str, Any]: ...

def node_of_address(address: int) -> int | None:
    """Node that the page of an address lies on; None if that is not known."""

def parse_bytes(text: str) -> int:
    """Number of bytes that a text such as '64KiB' means."""

def bytes_text(byte_count: int) -> str:
    """Text such as '1.5 MiB'."""
