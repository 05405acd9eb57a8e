# SPDX-License-Identifier: Apache-2.0
"""Entries and blocks as arrays and tensors of other libraries, and the reverse, without copies."""

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import headrace


class Tensor:
    """A tensor that has DLPack and no buffer, as those of torch."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class Foreign(Tensor):
    def __dlpack__(self, **options: Any) -> Any:
        del options
        raise BufferError("Unsupported device type")


@pytest.fixture
def cache() -> Iterator[headrace.Cache]:
    with headrace.Cache(capacity="64MiB", placement="local") as made:
        yield made


def address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize("dtype", ["<i8", "<f4", "<f2", "<c16", "?", "<M8[ns]", "i4,f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_entry_is_an_array_without_a_copy(cache: headrace.Cache, dtype: str, order: str) -> None:
    raw = np.random.default_rng(1).integers(0, 2, 6 * 5 * np.dtype(dtype).itemsize, np.uint8)
    source = np.asarray(raw.view(dtype).reshape(6, 5), order=order)  # type: ignore[call-overload]
    entry = cache.access(source)
    entry.wait()
    assert entry.cached
    found = np.asarray(entry)
    assert found.dtype == source.dtype
    assert found.tobytes() == source.tobytes()
    assert address(found) == address(entry.view()) != address(source)
    assert not found.flags.writeable


def test_an_entry_is_a_memoryview_that_keeps_its_copy(cache: headrace.Cache) -> None:
    view = memoryview(cache.access(np.arange(1000.0)))
    cache.clear()
    gc.collect()
    assert (view.format, view.shape, view.readonly) == ("d", (1000,), True)
    assert sum(view) == 499500.0


def test_a_consumer_of_dlpack_shares_the_memory_of_an_entry(cache: headrace.Cache) -> None:
    entry = cache.access(np.arange(12, dtype=np.int32).reshape(3, 4))
    entry.wait()
    found = np.from_dlpack(entry)
    assert address(found) == address(entry.view())
    del entry
    cache.clear()
    gc.collect()
    assert found.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


class OldConsumer:
    """What a consumer of DLPack before 1.0 asks for."""

    def __init__(self, entry: headrace.Entry) -> None:
        self.entry = entry

    def __dlpack__(self, **options: Any) -> Any:
        del options
        return self.entry.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.entry.__dlpack_device__()


def test_a_consumer_without_read_only_memory_keeps_the_copy_too(cache: headrace.Cache) -> None:
    entry = cache.access(np.arange(12, dtype=np.int16))
    entry.wait()
    found = np.from_dlpack(OldConsumer(entry))
    assert address(found) == address(entry.view())
    del entry
    cache.clear()
    gc.collect()
    assert found.tolist() == list(range(12))


def test_tensors_are_sources_and_blocks(cache: headrace.Cache) -> None:
    array = np.arange(600, dtype=np.float32).reshape(20, 30)
    entry = cache.access(Tensor(array))
    entry.wait()
    assert entry.cached
    assert np.array_equal(entry.view(), array)
    with headrace.Store(["1MiB"], block_bytes="64KiB") as store:
        store.put("tensor", Tensor(array))
        target = np.zeros_like(array)
        assert store.get_into("tensor", Tensor(target)) == array.nbytes
        assert np.array_equal(target, array)


def test_a_tensor_that_numpy_cannot_view_is_refused_by_name(cache: headrace.Cache) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="Unsupported device type"):
        cache.access(Foreign(np.arange(3)))


def test_torch_shares_memory_both_ways(cache: headrace.Cache) -> None:
    torch = pytest.importorskip("torch")
    source = torch.arange(1000, dtype=torch.float32)
    entry = cache.access(source)
    entry.wait()
    assert torch.from_dlpack(entry).data_ptr() == address(entry.view())
    with pytest.raises(headrace.InvalidArgumentError, match=r"view\(torch.uint8\)"):
        cache.access(source.to(torch.bfloat16))


def test_jax_shares_memory_both_ways(cache: headrace.Cache) -> None:
    jax = pytest.importorskip("jax")
    source = jax.numpy.arange(1000, dtype=jax.numpy.float32)
    entry = cache.access(source)
    entry.wait()
    found = jax.dlpack.from_dlpack(entry)
    assert found.unsafe_buffer_pointer() == address(entry.view())
    assert np.array_equal(found, source)


def test_awaiting_a_transfer_raises_its_error() -> None:
    async def main() -> None:
        with headrace.Store(["1MiB"], block_bytes="64KiB") as store:
            with pytest.raises(headrace.NotFoundError, match="unknown_key"):
                await store.get_many(["nothing"], [bytearray(10)])
            transfer = await store.get_many(["nothing"], [bytearray(10)]).ended()
            assert transfer.outcomes == ["unknown_key"]
            await store.put_many(["key"], [b"bytes"])
            with pytest.raises(headrace.InvalidArgumentError):
                await store.put_many(["long"], [bytes(70000)])

    asyncio.run(main())
