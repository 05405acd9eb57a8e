# SPDX-License-Identifier: Apache-2.0
"""Views any buffer as a flat NumPy array of bytes, without copying."""

import re
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from headrace.errors import InvalidArgumentError

ByteArray = npt.NDArray[np.uint8]
if TYPE_CHECKING:
    from typing import Protocol

    from typing_extensions import Buffer

    class SupportsDLPack(Protocol):
        """A tensor of another library."""

        def __dlpack__(self, **options: Any) -> Any: ...  # noqa: ANN401 - A capsule.

        def __dlpack_device__(self) -> tuple[int, int]: ...

    Memory = Buffer | npt.NDArray[Any] | SupportsDLPack
    """NumPy arrays, tensors with DLPack and everything with the buffer protocol."""
else:
    Memory = object

_KINDS = "pass a NumPy array, bytes, a memoryview, a pyarrow.Buffer or another buffer"


def as_array_if_tensor(value: object) -> object:
    """View a tensor, or what else has DLPack, as a NumPy array; return anything else as it is.

    Raises:
        InvalidArgumentError: The tensor is not in the processor's memory, or NumPy has no type for
            its elements, such as bfloat16.
    """
    if isinstance(value, np.ndarray) or not hasattr(type(value), "__dlpack__"):
        return value
    try:
        return np.from_dlpack(value)  # type: ignore[arg-type]
    except Exception as problem:  # Exporters raise anything.
        raise InvalidArgumentError(
            f"use a {type(value).__name__}",
            f"its DLPack export fails ({problem})",
            "pass one in the processor's memory, and view types that NumPy does not have as "
            "bytes: tensor.view(torch.uint8)",
        ) from problem


def flat_bytes(value: object, role: str, *, writable: bool = False) -> ByteArray:
    """View the bytes of `value` without copying them.

    The view exports the owner's buffer, so shared memory, mapped files and bytearrays cannot be
    closed or resized while the view lives.

    Args:
        value: A NumPy array, a tensor with DLPack, or anything with the buffer protocol.
        role: Name of the argument for errors: "source", "target".
        writable: Refuse read-only memory.

    Raises:
        InvalidArgumentError: `value` has no buffer, is empty, not contiguous, masked or closed,
            holds references to Python objects, or is read-only while `writable`.
    """
    value = as_array_if_tensor(value)
    array = value if isinstance(value, np.ndarray) else _array_of(value, role)
    if isinstance(array, np.ma.MaskedArray):
        _refuse(role, "it is masked, and a mask is not moved", "pass its data, or filled(...)")
    if array.dtype.hasobject:
        _refuse(role, *_HAS_OBJECTS)
    if array.size == 0:
        _refuse(role, "it is empty", "pass at least one byte")
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        _refuse(role, "it is not contiguous", "pass numpy.ascontiguousarray(...) of it")
    if writable and not array.flags.writeable:
        _refuse(role, "it is read-only", "pass memory that may be written, such as a bytearray")
    # Order "A" keeps the memory order, so that nothing contiguous is copied.
    flat: ByteArray = np.asarray(array).reshape(-1, order="A").view(np.uint8)
    return flat if array.flags.owndata else _exported(flat, role)


def readable(value: object, role: str) -> bytes | bytearray | ByteArray:
    """As `flat_bytes`, but bytes and bytearrays may be empty."""
    return value if isinstance(value, bytes | bytearray) else flat_bytes(value, role)


def require_one_order(**arrays: object) -> None:
    """Refuse arrays, by role, of one operation with different memory orders.

    Bytes are moved in memory order: between Fortran order and C order, this would permute the
    elements. Buffers without an order, such as bytes or one dimension, fit either.

    Raises:
        InvalidArgumentError: One is in Fortran order and another in C order.
    """
    roles: dict[str, str] = {}
    for role, value in arrays.items():
        if isinstance(value, np.ndarray) and value.flags.c_contiguous != value.flags.f_contiguous:
            roles.setdefault("C" if value.flags.c_contiguous else "Fortran", role)
    if len(roles) > 1:
        _refuse(
            roles["Fortran"].replace("_", " "),
            f"it is in Fortran order and the {roles['C'].replace('_', ' ')} is in C order",
            "pass arrays of one order, such as numpy.ascontiguousarray(...) of it",
        )


def _exported(flat: ByteArray, role: str) -> ByteArray:
    """The same bytes through a buffer export of their owner, if it has a buffer."""
    owner: object = flat
    while isinstance(owner, np.ndarray):
        if owner.flags.owndata or owner.base is None:
            return flat
        owner = owner.base
    try:
        whole = np.frombuffer(memoryview(owner), np.uint8)  # type: ignore[arg-type]
    except ValueError:
        _refuse(role, "its memory has been closed", "keep it open as long as it is used")
    except (TypeError, BufferError):
        return flat  # The owner keeps its memory by other means, such as an array interface.
    begin = flat.ctypes.data - whole.ctypes.data
    if begin < 0 or begin + flat.nbytes > whole.nbytes:
        return flat
    exported: ByteArray = whole[begin : begin + flat.nbytes]
    exported.flags.writeable = flat.flags.writeable
    return exported


_HAS_OBJECTS = ("it holds references to Python objects", "convert it to a numeric type")


def _array_of(value: object, role: str) -> npt.NDArray[Any]:
    try:
        view = memoryview(value)  # type: ignore[arg-type]
    except Exception as problem:  # Exporters raise anything; pyarrow even AssertionError.
        cause = f"a {type(value).__name__} has no buffer that can be used"
        raise InvalidArgumentError(f"use the {role}", cause, _KINDS) from problem
    # "O" is an object reference; names of fields are between colons.
    if "O" in view.format and "O" in re.sub(":[^:]*:", "", view.format):
        _refuse(role, *_HAS_OBJECTS)
    if view.nbytes == 0:
        _refuse(role, "it is empty", "pass at least one byte")
    if not view.c_contiguous:
        _refuse(role, "it is not contiguous", "pass bytes(...) of it")
    array = np.frombuffer(view, np.uint8)
    if array.flags.owndata:
        # NumPy allocates for a null address, so these are other bytes.
        _refuse(role, "its address is null", "pass memory that exists")
    return array


def _refuse(role: str, cause: str, remedy: str) -> NoReturn:
    raise InvalidArgumentError(f"use the {role}", cause, remedy)
