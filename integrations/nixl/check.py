# SPDX-License-Identifier: Apache-2.0
"""Tests the back end HEADRACE in an unmodified NIXL.

Run by scripts/integrations with NIXL_PLUGIN_DIR set, in an environment that has nixl-cu12.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable

import numpy as np
from nixl_cu12._api import nixl_agent, nixl_agent_config

BACKEND = "HEADRACE"
MIB = 2**20
SHAPES = {"64 B": (1, 64), "1024 x 4 KiB": (1024, 4096), "64 MiB": (1, 64 * MIB)}


class Pair:
    """Two registered buffers of one agent, and the transfers between them."""

    def __init__(self, byte_count: int) -> None:
        self.agent = nixl_agent("self", nixl_agent_config(backends=[BACKEND]))
        self.source = np.random.default_rng(1).integers(0, 255, byte_count, np.uint8)
        self.target = np.zeros(byte_count, np.uint8)
        self.registered = [
            self.agent.register_memory(
                [(each.ctypes.data, byte_count, 0, "")], "DRAM", backends=[BACKEND]
            )
            for each in (self.source, self.target)
        ]

    def add_file(self, descriptor: int, byte_count: int) -> None:
        """Register a file; a shorter one is extended to that length."""
        whole = [(0, byte_count, descriptor, "")]
        self.registered.append(self.agent.register_memory(whole, "FILE", backends=[BACKEND]))

    def file_request(  # noqa: ANN201 - NIXL has no types.
        self, kind: str, memory: np.ndarray, descriptor: int, length: int
    ):
        """Prepare a "WRITE" of memory to a file, or a "READ", in blocks in reverse order."""
        places = range(0, memory.nbytes, length)
        lists = [
            self.agent.get_xfer_descs(descriptors, name)
            for descriptors, name in (
                ([(memory.ctypes.data + at, length, 0) for at in places], "DRAM"),
                ([(at, length, descriptor) for at in reversed(places)], "FILE"),
            )
        ]
        return self.agent.initialize_xfer(kind, *lists, "self", backends=[BACKEND])

    def request(self, count: int, length: int):  # noqa: ANN201 - NIXL has no types.
        """Prepare `count` copies of `length` bytes to shuffled places in the target."""
        order = np.random.default_rng(2).permutation(count)
        self.order, self.length = order, length
        lists = [
            self.agent.get_xfer_descs(
                [(each.ctypes.data + int(at) * length, length, 0) for at in places], "DRAM"
            )
            for each, places in ((self.source, range(count)), (self.target, order))
        ]
        return self.agent.initialize_xfer("WRITE", *lists, "self", backends=[BACKEND])

    def run(self, handle) -> None:  # noqa: ANN001
        """Post and wait."""
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        assert state == "DONE", state

    def check(self) -> None:
        """Check that every block is in its place, and nothing else has changed."""
        count = len(self.order)
        moved = count * self.length
        expected = np.zeros_like(self.target)
        blocks = self.source[:moved].reshape(count, self.length)
        expected[:moved].reshape(count, self.length)[self.order] = blocks
        assert (self.target == expected).all()


def check_backend() -> None:
    """Test contents, repetition, release in flight, and refused requests."""
    pair = Pair(64 * MIB)
    for count, length in SHAPES.values():
        pair.target[:] = 0
        handle = pair.request(count, length)
        pair.run(handle)
        pair.run(handle)  # A request may be posted again.
        pair.check()
        pair.agent.release_xfer_handle(handle)
    handle = pair.request(1024, 65536)
    pair.agent.transfer(handle)
    pair.agent.release_xfer_handle(handle)  # In flight: stops it.
    for refused in (
        lambda: pair.agent.register_memory([(4096, 4096, 0, "")], "DRAM", backends=[BACKEND]),
        lambda: pair.request(2, 64 * MIB),
    ):
        must_be_refused(refused)


def check_large() -> None:
    """Run only each large shape once: the caller counts the bytes that devices wrote."""
    pair = Pair(64 * MIB)
    byte_count = 0
    for count, length in list(SHAPES.values())[1:]:
        pair.target[:] = 0
        pair.run(pair.request(count, length))
        pair.check()
        byte_count += count * length
    print(byte_count)


def check_files() -> None:
    """Write blocks to a file and read them back; closed and read-only files are refused."""
    byte_count = 16 * MIB
    pair = Pair(byte_count)
    with tempfile.NamedTemporaryFile() as file:
        descriptor = file.fileno()
        pair.add_file(descriptor, byte_count)
        for length in (4096, byte_count):
            pair.run(pair.file_request("WRITE", pair.source, descriptor, length))
            written = np.frombuffer(os.pread(descriptor, byte_count, 0), np.uint8)
            assert (written.reshape(-1, length)[::-1] == pair.source.reshape(-1, length)).all()
            pair.target[:] = 0
            pair.run(pair.file_request("READ", pair.target, descriptor, length))
            assert (pair.target == pair.source).all()
        with open(file.name, "rb") as read_only:  # noqa: PTH123 - A descriptor is wanted.
            pair.add_file(read_only.fileno(), byte_count)
            pair.target[:] = 0
            pair.run(pair.file_request("READ", pair.target, read_only.fileno(), byte_count))
            assert (pair.target == pair.source).all()
            for refused in (
                lambda: pair.file_request("WRITE", pair.source, read_only.fileno(), byte_count),
                lambda: pair.add_file(read_only.fileno(), 2 * byte_count),
                lambda: pair.add_file(12345, byte_count),
            ):
                must_be_refused(refused)


def must_be_refused(call: Callable[[], object]) -> None:
    """End the program unless NIXL raises."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - Whatever NIXL makes of it.
        print(f"refused: {type(error).__name__}")
    else:
        sys.exit("what cannot be used was accepted")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true", help="print how many bytes were moved")
    chosen = parser.parse_args()
    if chosen.large:
        check_large()
        sys.exit()
    check_backend()
    check_files()
    print("NIXL with HEADRACE: every block is right")
