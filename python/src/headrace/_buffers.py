# SPDX-License-Identifier: Apache-2.0
"""Every kind of memory that Python knows, as a flat NumPy array of its bytes; nothing is copied."""

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import InvalidArgumentError

ByteArray = npt.NDArray[np.uint8]

_KINDS = "pass a NumPy array, bytes, a memoryview, a pyarrow.Buffer or another buffer"


def flat_bytes(value: object, role: str, *, writable: bool = False) -> ByteArray:
    """View the bytes of `value` without copying them.

    Args:
        value: A NumPy array or anything with the buffer protocol.
        role: What it is to the caller, for the message: "source", "target".
        writable: Refuse read-only memory.

    Raises:
        InvalidArgumentError: `value` has no buffer, is empty, has gaps, holds references to
            Python objects, is masked, or is read-only while `writable`.
    """
    array = value if isinstance(value, np.ndarray) else _array_of(value, role)
    if isinstance(array, np.ma.MaskedArray):
        _refuse(role, "it is masked, and a mask is not moved", "pass its data, or filled(...)")
    if array.dtype.hasobject:
        _refuse(role, "it holds references to Python objects", "convert it to a numeric type")
    if array.size == 0:
        _refuse(role, "it is empty", "pass at least one byte")
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        _refuse(role, "it is not contiguous", "pass numpy.ascontiguousarray(...) of it")
    if writable and not array.flags.writeable:
        _refuse(role, "it is read-only", "pass memory that may be written, such as a bytearray")
    # Order "A" is the order in memory: no copy of anything contiguous.
    flat: ByteArray = np.asarray(array).reshape(-1, order="A").view(np.uint8)
    return flat


def _array_of(value: object, role: str) -> npt.NDArray[Any]:
    try:
        view = memoryview(value)  # type: ignore[arg-type]
    except Exception as problem:  # Whatever the exporter raises, pyarrow even AssertionError.
        cause = f"a {type(value).__name__} has no buffer that can be used"
        raise InvalidArgumentError(f"use the {role}", cause, _KINDS) from problem
    if view.nbytes == 0:
        _refuse(role, "it is empty", "pass at least one byte")
    if not view.c_contiguous:
        _refuse(role, "it is not contiguous", "pass bytes(...) of it")
    array = np.frombuffer(view, np.uint8)
    if array.flags.owndata:
        # NumPy takes a null address for "allocate": these would be other bytes.
        _refuse(role, "its address is null", "pass memory that exists")
    return array


def _refuse(role: str, cause: str, remedy: str) -> None:
    raise InvalidArgumentError(f"use the {role}", cause, remedy)
