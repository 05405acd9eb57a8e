# SPDX-License-Identifier: Apache-2.0
"""The back end HEADRACE in an unmodified NIXL: transfers, their ends, and beside UCX.

Run by scripts/integrations with NIXL_PLUGIN_DIR set, in an environment that has nixl-cu12.
"""

import argparse
import statistics
import sys
import time

import numpy as np
from nixl_cu12._api import nixl_agent, nixl_agent_config

MIB = 2**20
SHAPES = {"64 B": (1, 64), "1024 x 4 KiB": (1024, 4096), "64 MiB": (1, 64 * MIB)}


class Pair:
    """Two registered buffers of one agent, and the transfers between them."""

    def __init__(self, backend: str, byte_count: int) -> None:
        self.backend = backend
        self.agent = nixl_agent("self", nixl_agent_config(backends=[backend]))
        self.source = np.random.default_rng(1).integers(0, 255, byte_count, np.uint8)
        self.target = np.zeros(byte_count, np.uint8)
        self.registered = [
            self.agent.register_memory(
                [(each.ctypes.data, byte_count, 0, "")], "DRAM", backends=[backend]
            )
            for each in (self.source, self.target)
        ]

    def request(self, count: int, length: int):  # noqa: ANN201 - NIXL has no types.
        """Prepare `count` copies of `length` bytes, in another order in the target."""
        order = np.random.default_rng(2).permutation(count)
        self.order, self.length = order, length
        lists = [
            self.agent.get_xfer_descs(
                [(each.ctypes.data + int(at) * length, length, 0) for at in places], "DRAM"
            )
            for each, places in ((self.source, range(count)), (self.target, order))
        ]
        return self.agent.initialize_xfer("WRITE", *lists, "self", backends=[self.backend])

    def run(self, handle) -> tuple[float, float]:  # noqa: ANN001
        """Post and wait; seconds until the post returned and until the end."""
        begin = time.perf_counter()
        state = self.agent.transfer(handle)
        posted = time.perf_counter()
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        assert state == "DONE", state
        return posted - begin, time.perf_counter() - begin

    def check(self) -> None:
        """Every block is where it belongs, and nothing else has changed."""
        count = len(self.order)
        moved = count * self.length
        expected = np.zeros_like(self.target)
        blocks = self.source[:moved].reshape(count, self.length)
        expected[:moved].reshape(count, self.length)[self.order] = blocks
        assert (self.target == expected).all()


def check_backend() -> None:
    """Bytes, repetition, release in flight, and what is refused."""
    pair = Pair("HEADRACE", 64 * MIB)
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
        lambda: pair.agent.register_memory([(4096, 4096, 0, "")], "DRAM", backends=["HEADRACE"]),
        lambda: pair.request(2, 64 * MIB),
    ):
        try:
            refused()
        except Exception as error:  # noqa: BLE001 - Whatever NIXL makes of it.
            print(f"refused: {type(error).__name__}")
        else:
            sys.exit("memory that is not mapped, or not registered, was accepted")


def compare(rounds: int) -> None:
    """HEADRACE and UCX in turns."""
    pairs = [Pair(backend, 64 * MIB) for backend in ("HEADRACE", "UCX")]
    for name, (count, length) in SHAPES.items():
        handles = [pair.request(count, length) for pair in pairs]
        times: list[list[tuple[float, float]]] = [[], []]
        for turn in range(2 * rounds):
            which = turn % 2
            times[which].append(pairs[which].run(handles[which]))
        ours, theirs = (
            [statistics.median(column) for column in zip(*each, strict=True)] for each in times
        )
        print(
            f"{name}: post {ours[0] * 1e6:.1f} us (UCX {theirs[0] * 1e6:.1f}), "
            f"end {ours[1] * 1e6:.1f} us (UCX {theirs[1] * 1e6:.1f})"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--compare", type=int, metavar="ROUNDS")
    chosen = parser.parse_args()
    check_backend()
    if chosen.compare:
        compare(chosen.compare)
    print("NIXL with HEADRACE: every block is right")
