# SPDX-License-Identifier: Apache-2.0
"""Memory of every kind as bytes: what owns it cannot be closed, and elements are not permuted."""

import ctypes
import gc
import mmap
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace
from headrace import Operation as Op
from headrace._buffers import flat_bytes
from headrace.errors import InvalidArgumentError

BYTES = 1 << 16


@pytest.fixture
def shared() -> Iterator[shared_memory.SharedMemory]:
    made = shared_memory.SharedMemory(create=True, size=BYTES)
    yield made
    made.unlink()
    gc.collect()
    with suppress(BufferError):
        made.close()


def test_shared_memory_cannot_be_closed_while_a_job_may_use_it(
    engine: headrace.Engine, shared: shared_memory.SharedMemory
) -> None:
    array: np.ndarray[Any, Any] = np.ndarray(BYTES, np.uint8, buffer=shared.buf)
    target = np.zeros(BYTES, np.uint8)
    job = engine.submit(source=array, target=target)
    with pytest.raises(BufferError):
        shared.close()
    assert job.wait()
    del job, array
    gc.collect()
    shared.close()


def test_shared_memory_cannot_be_closed_while_a_cache_may_find_it(
    shared: shared_memory.SharedMemory,
) -> None:
    with headrace.Cache(placement="local") as cache:
        array: np.ndarray[Any, Any] = np.ndarray(BYTES, np.uint8, buffer=shared.buf)
        array[:] = 1
        cache.access(array).wait()
        del array
        with pytest.raises(BufferError):
            shared.close()
        cache.clear()
        gc.collect()
        shared.close()


def test_an_array_over_a_bytearray_keeps_it_from_being_resized() -> None:
    owner = bytearray(BYTES)
    array: np.ndarray[Any, Any] = np.ndarray(BYTES, np.uint8, buffer=owner)
    operation = Op.copy(source=array[16:32], target=bytearray(16))
    with pytest.raises(BufferError):
        owner.extend(b"more")
    del operation
    gc.collect()
    owner.extend(b"more")


def test_an_array_over_a_mapped_file_keeps_it_mapped(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(BYTES))
    mapped = np.memmap(tmp_path / "file", mode="r+")
    owner = mapped._mmap  # type: ignore[attr-defined]  # noqa: SLF001
    operation = Op.fill(mapped, 1)
    with pytest.raises(BufferError):
        owner.close()
    del operation


def closed_mapping() -> np.ndarray[Any, Any]:
    owner = mmap.mmap(-1, BYTES)
    array: np.ndarray[Any, Any] = np.ndarray(BYTES, np.uint8, buffer=owner)
    owner.close()
    return array


def test_an_array_whose_memory_was_closed_is_refused(engine: headrace.Engine) -> None:
    with pytest.raises(InvalidArgumentError, match="its memory has been closed"):
        engine.copy(source=closed_mapping(), target=bytearray(BYTES))


def interfaced() -> np.ndarray[Any, Any]:
    class Owner:
        def __init__(self) -> None:
            self.array = np.arange(BYTES, dtype=np.uint8)
            self.__array_interface__ = self.array.__array_interface__

    return np.asarray(Owner())


@pytest.mark.parametrize(
    "array",
    [
        np.arange(60, dtype=np.int32).reshape(3, 4, 5)[1],
        np.asfortranarray(np.arange(60.0).reshape(6, 10)),
        np.frombuffer(bytes(range(256)), ">i4")[3:9],
        pa.array(range(100)).to_numpy()[10:20],
        np.ctypeslib.as_array((ctypes.c_int * 50)(*range(50)))[5:25],
        np.asarray(interfaced())[100:200],
        np.asarray(mmap.mmap(-1, BYTES))[7:11],
    ],
)
@pytest.mark.parametrize("writable", [False, True])
def test_the_bytes_of_an_array_are_where_the_array_is(
    array: np.ndarray[Any, Any], writable: bool
) -> None:
    if writable and not array.flags.writeable:
        with pytest.raises(InvalidArgumentError, match="read-only"):
            flat_bytes(array, "target", writable=True)
        return
    flat = flat_bytes(array, "source", writable=writable)
    assert flat.ctypes.data == array.ctypes.data
    assert flat.nbytes == array.nbytes
    assert flat.flags.writeable == array.flags.writeable


FORTRAN = np.asfortranarray(np.arange(16.0).reshape(4, 4))
PLAIN = np.zeros((4, 4))
RECORD = np.zeros(200, np.uint8)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Op.copy(source=FORTRAN, target=PLAIN),
        lambda: Op.copy(source=PLAIN, target=FORTRAN),
        lambda: Op.compare(FORTRAN, PLAIN),
        lambda: Op.copy_crc(source=FORTRAN, target=PLAIN),
        lambda: Op.dual_copy(source=PLAIN, target=PLAIN, second_target=FORTRAN),
        lambda: Op.create_delta(RECORD, FORTRAN, PLAIN),
    ],
)
def test_arrays_of_two_orders_are_refused(make: Callable[[], Op]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"is in Fortran order and the .+ is in C"):
        make()


def test_arrays_of_one_order_and_bytes_are_copied_as_they_lie(engine: headrace.Engine) -> None:
    target = np.zeros((4, 4), order="F")
    engine.copy(source=FORTRAN, target=target)
    assert (target == FORTRAN).all()
    flat = np.zeros(16)
    engine.copy(source=FORTRAN, target=flat)
    assert (flat == FORTRAN.ravel(order="K")).all()
    column = np.asfortranarray(np.arange(4.0).reshape(4, 1))
    engine.copy(source=column, target=np.zeros((1, 4)))


class Named(ctypes.Structure):
    _fields_ = (("O", ctypes.c_int), ("to", ctypes.c_int))


class Holder(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int), ("item", ctypes.py_object))


@pytest.mark.parametrize(
    "value",
    [
        memoryview(np.array([object(), object()], dtype=object).data),
        (ctypes.py_object * 2)(),
        Holder(1, object()),
        np.array([object()], dtype=object),
    ],
)
def test_references_to_objects_are_never_moved_as_bytes(
    engine: headrace.Engine, value: object
) -> None:
    with pytest.raises(InvalidArgumentError, match="references to Python objects"):
        engine.copy(source=value, target=bytearray(16))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="references to Python objects"):
        Op.fill(value, 0)  # type: ignore[arg-type]


def test_a_field_named_like_a_reference_is_no_reference() -> None:
    assert flat_bytes((Named * 2)(), "source").nbytes == 16
