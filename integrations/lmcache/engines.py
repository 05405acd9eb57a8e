# SPDX-License-Identifier: Apache-2.0
"""Two engines of LMCache with one store: each loads what the other one has stored.

An engine is LMCache's StorageManager, with memory and the L2 adapter, in a separate process. The
store is that of 'headrace store serve'.
"""

import argparse
import json
import multiprocessing
import subprocess
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Barrier

import torch
from lmcache.v1.distributed import api, config
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config
from lmcache.v1.distributed.storage_manager import StorageManager

import headrace

HEADRACE = Path(__file__).parents[2] / ".venv/bin/headrace"
OBJECTS = 8
OBJECT_BYTES = 1 << 20
LAYOUT = api.MemoryLayoutDesc([torch.Size([OBJECT_BYTES])], [torch.uint8])
TIME_S = 300


def keys_of(number: int) -> list[api.ObjectKey]:
    """Keys of what an engine stores."""
    numbers = range(number * OBJECTS, (number + 1) * OBJECTS)
    return [api.ObjectKey(each.to_bytes(16, "big"), "a model", 0) for each in numbers]


def engine(number: int, socket: str, barrier: Barrier) -> None:
    """Store objects, and load those of the other engine."""
    adapter = {
        "type": "plugin",
        "module_path": "headrace.integrations.lmcache",
        "class_name": "HeadraceL2Adapter",
        "adapter_params": {"connect": socket, "block_bytes": OBJECT_BYTES},
    }
    adapters = parse_args_to_l2_adapters_config(
        argparse.Namespace(l2_adapter=[json.dumps(adapter)])
    )
    memory = config.L1MemoryManagerConfig(8 * OBJECTS * OBJECT_BYTES, use_lazy=False)
    lru = config.EvictionConfig("LRU")
    known = config.StorageManagerConfig(config.L1ManagerConfig(memory), lru, adapters)
    storage = StorageManager(known)
    own, other = keys_of(number), keys_of(1 - number)
    for key, each in storage.reserve_write(own, LAYOUT).items():
        each.tensor.fill_(key.chunk_hash[-1])
    storage.finish_write(own)
    with headrace.Store.connect(socket) as store:
        end = time.monotonic() + TIME_S
        while len(store) < 2 * OBJECTS:
            assert time.monotonic() < end
            time.sleep(0.05)
    barrier.wait(TIME_S)
    wanted = api.PrefetchTaskSpec([api.GroupedObjectKeys(other, 0, LAYOUT)])
    handle = storage.submit_prefetch_task(wanted)
    assert storage.wait_prefetch_status(handle, TIME_S)
    result = storage.query_prefetch_status(handle)
    assert (result.l1_hit_count, result.l2_hit_count) == (0, OBJECTS)
    with storage.read_prefetched_results(other) as objects:
        for key, each in zip(other, objects, strict=True):
            assert (each.tensor == key.chunk_hash[-1]).all()
    storage.finish_read_prefetched(other)
    barrier.wait(TIME_S)
    storage.close()
    print(
        f"LMCache, engine {number} of two with one store: {result.l2_hit_count} of {OBJECTS} "
        "objects that the other one had stored",
        flush=True,
    )


def main() -> None:
    """Run the server and both engines."""
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/socket"
        # Each engine has two connections, and locks at most its part of half of the memory.
        options = ["--memory", "128MiB", "--block", "1MiB", "--clients", "4"]
        serve = [HEADRACE, "store", "serve", socket, *options]
        with subprocess.Popen(serve, stdout=subprocess.PIPE) as server:  # noqa: S603
            try:
                assert server.stdout is not None
                assert server.stdout.readline()
                with multiprocessing.get_context("spawn").Manager() as manager:
                    barrier = manager.Barrier(2)
                    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
                        list(pool.map(engine, range(2), [socket] * 2, [barrier] * 2))
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
