# SPDX-License-Identifier: Apache-2.0
"""Operations on memory as values, and their completions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from headrace import _core
from headrace._arguments import instance_of, whole_number
from headrace._buffers import ByteArray, Memory, flat_bytes, require_one_order
from headrace._closing import OfOneProcess
from headrace._words import counted
from headrace.errors import Error, InvalidArgumentError

_WORD_MAX = (1 << 64) - 1
_SEED_MAX = (1 << 32) - 1
_DIF_BLOCKS = (512, 520, 4096, 4104)
_DIF_ERRORS = ("guard", "application", "reference", "all_ones")
_DELTA_ROOM_MIN = 80


@dataclass(frozen=True, slots=True)
class DifFormat:
    """Format of T10 data integrity fields (DIF): 8 bytes after each block, the first two its guard.

    Attributes:
        block_bytes: Data bytes per block, without the field: 512, 520, 4096 or 4104.
        invert_seed: The CRC of the guard starts from all ones.
        invert_guard: The guard is stored inverted.
    """

    block_bytes: int = 512
    invert_seed: bool = False
    invert_guard: bool = False

    def __post_init__(self) -> None:
        if self.block_bytes not in _DIF_BLOCKS:
            raise InvalidArgumentError(
                "take the format of integrity fields",
                f"blocks of {self.block_bytes!r} bytes were asked for",
                f"take one of {_DIF_BLOCKS}",
            )


@dataclass(frozen=True, slots=True)
class DifTags:
    """Tags of a block.

    Attributes:
        reference: 32 bits; counts blocks by default.
        application: 16 bits.
        application_mask: Bits of `application` that are neither compared nor written.
    """

    reference: int = 0
    application: int = 0
    application_mask: int = 0

    def __post_init__(self) -> None:
        tried = "take the tags of integrity fields"
        whole_number(self.reference, tried, 0, (1 << 32) - 1)
        whole_number(self.application, tried, 0, (1 << 16) - 1)
        whole_number(self.application_mask, tried, 0, (1 << 16) - 1)


_NO_TAGS = DifTags()


@dataclass(frozen=True, slots=True)
class DifSource:
    """How the fields of a source are checked, and which tags are expected in each block.

    Attributes:
        tags: Tags of the first block.
        check_guard: Compare the guard.
        check_reference: Compare the reference tag.
        fixed_reference: Every block has the reference tag of the first.
        increment_application: The application tag also counts blocks.
        skip_ones_in_application: Skip blocks whose application tag is all ones.
        skip_ones_in_tags: Skip blocks whose tags are both all ones.
        skip_ones_in_field: Skip blocks whose field is all ones.
        ones_in_field_are_an_error: With `skip_ones_in_field`: report such blocks as "all_ones".
    """

    tags: DifTags = field(default_factory=DifTags)
    check_guard: bool = True
    check_reference: bool = True
    fixed_reference: bool = False
    increment_application: bool = False
    skip_ones_in_application: bool = False
    skip_ones_in_tags: bool = False
    skip_ones_in_field: bool = False
    ones_in_field_are_an_error: bool = False

    def __post_init__(self) -> None:
        instance_of(self.tags, DifTags, "take the check of integrity fields")


@dataclass(frozen=True, slots=True)
class DifTarget:
    """How the fields of a target are generated.

    Attributes:
        tags: Tags of the first block.
        fixed_reference: Every block gets the reference tag of the first.
        increment_application: The application tag also counts blocks.
        keep_guard: An update keeps the guard of the source.
        keep_application: An update keeps the application tag of the source.
        keep_reference: An update keeps the reference tag of the source.
    """

    tags: DifTags = field(default_factory=DifTags)
    fixed_reference: bool = False
    increment_application: bool = False
    keep_guard: bool = False
    keep_application: bool = False
    keep_reference: bool = False

    def __post_init__(self) -> None:
        instance_of(self.tags, DifTags, "take the making of integrity fields")


@dataclass(frozen=True, slots=True, eq=False)
class Operation(OfOneProcess):
    """An operation on memory; made by one of the class methods.

    Devices and processors produce the same bytes and results. An operation keeps its buffers alive
    and prevents resizing; do not change them while a job runs it.

    The class methods raise InvalidArgumentError for a buffer that is empty or not contiguous, and
    for a read-only target. Whether the buffers fit together is checked on submission.

    Threading: immutable.
    """

    kind: str
    target: ByteArray | None = None
    source: ByteArray | None = None
    second: ByteArray | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    is_fenced: bool = False
    is_durable: bool = False
    is_into_cache: bool = False

    def fenced(self) -> Self:
        """In a batch: start after all before it; if one of those failed, skip this and the rest."""
        return replace(self, is_fenced=True)

    def durable(self) -> Self:
        """Write the target back from the caches to memory before the job ends.

        On persistent memory it then survives power loss. A mapped ordinary file also needs msync.
        """
        return replace(self, is_durable=True)

    def into_cache(self) -> Self:
        """Hint to a device: write the target into the last-level cache."""
        return replace(self, is_into_cache=True)

    @classmethod
    def no_op(cls) -> Self:
        """Do nothing."""
        return cls("no_op")

    @classmethod
    def drain(cls) -> Self:
        """End after all that was submitted to the engine before it, wherever that runs.

        One at a time: until it has ended, another one is refused as `full`.
        """
        return cls("drain")

    @classmethod
    def copy(cls, *, source: Memory, target: Memory) -> Self:
        """Copy all of `source` to `target`."""
        require_one_order(source=source, target=target)
        return cls("copy", target=_written(target), source=flat_bytes(source, "source"))

    @classmethod
    def fill(cls, target: Memory, pattern: int) -> Self:
        """Fill with the 8 bytes of `pattern`, little-endian; the last repetition may be partial."""
        pattern = whole_number(pattern, "take the pattern of a fill", 0, _WORD_MAX)
        return cls("fill", target=_written(target), options={"low": pattern, "high": pattern})

    @classmethod
    def fill_16(cls, target: Memory, low: int, high: int) -> Self:
        """Fill with 16 bytes: those of `low`, then those of `high`."""
        tried = "take the pattern of a fill"
        for word in (low, high):
            whole_number(word, tried, 0, _WORD_MAX)
        return cls("fill", target=_written(target), options={"low": low, "high": high})

    @classmethod
    def compare(cls, one: Memory, other: Memory) -> Self:
        """Find the first difference; sets `different` and `difference_offset`."""
        require_one_order(source=one, other_source=other)
        second = flat_bytes(other, "other source")
        return cls("compare", source=flat_bytes(one, "source"), second=second)

    @classmethod
    def compare_pattern(cls, source: Memory, pattern: int) -> Self:
        """Compare with the repeated pattern, as `fill` writes it; results as of `compare`."""
        pattern = whole_number(pattern, "take the pattern of a comparison", 0, _WORD_MAX)
        options = {"pattern": pattern}
        return cls("compare_pattern", source=flat_bytes(source, "source"), options=options)

    @classmethod
    def dual_copy(cls, *, source: Memory, target: Memory, second_target: Memory) -> Self:
        """Copy one source to two targets, whose addresses must agree in their lowest 12 bits."""
        require_one_order(source=source, target=target, second_target=second_target)
        second = flat_bytes(second_target, "second target", writable=True)
        return cls(
            "dualcast", target=_written(target), source=flat_bytes(source, "source"), second=second
        )

    @classmethod
    def create_delta(cls, record: Memory, before: Memory, after: Memory) -> Self:
        """Write to `record` the changes that turn `before` into `after`.

        The completion has `delta_bytes`, 10 for each 8 bytes that differ, and `record_full` if
        they did not fit. Addresses and lengths are multiples of 8 bytes, the sources at most
        512 KiB, the record at least 80 bytes.
        """
        target = flat_bytes(record, "record", writable=True)
        if target.size < _DELTA_ROOM_MIN:
            raise InvalidArgumentError(
                "take the record of a delta",
                f"it has room for {target.size} bytes",
                f"pass at least {_DELTA_ROOM_MIN} bytes",
            )
        require_one_order(source=before, other_source=after)
        second = flat_bytes(after, "other source")
        return cls(
            "create_delta", target=target, source=flat_bytes(before, "source"), second=second
        )

    @classmethod
    def apply_delta(cls, target: Memory, record: Memory) -> Self:
        """Apply the changes in `record`: the first `delta_bytes` that `create_delta` wrote."""
        return cls("apply_delta", target=_written(target), source=flat_bytes(record, "record"))

    @classmethod
    def crc(
        cls, source: Memory, *, seed: int = 0, raw: bool = False, reflect_data: bool = True
    ) -> Self:
        """Compute the CRC-32C (as iSCSI and ext4); pass the result as `seed` to continue it.

        Args:
            source: The data.
            seed: Initial value.
            raw: Seed and result are raw register values: neither inverted nor reflected.
            reflect_data: False processes the bits of each byte from highest to lowest.
        """
        options = _crc(seed, raw=raw, reflect_data=reflect_data)
        return cls("crc", source=flat_bytes(source, "source"), options=options)

    @classmethod
    def copy_crc(
        cls,
        *,
        source: Memory,
        target: Memory,
        seed: int = 0,
        raw: bool = False,
        reflect_data: bool = True,
    ) -> Self:
        """Copy, and compute the CRC-32C of the data as `crc` does."""
        require_one_order(source=source, target=target)
        options = _crc(seed, raw=raw, reflect_data=reflect_data)
        read = flat_bytes(source, "source")
        return cls("copy_crc", target=_written(target), source=read, options=options)

    @classmethod
    def dif_check(
        cls, source: Memory, blocks: DifFormat | None = None, check: DifSource | None = None
    ) -> Self:
        """Check the integrity fields of whole blocks.

        The first bad block fails the job with the cause "integrity_error": `dif_errors` of the
        completion has the errors, `bytes_done` the position.
        """
        options = _integrity(blocks=blocks, check=check)
        return cls("dif_check", source=flat_bytes(source, "source"), options=options)

    @classmethod
    def dif_insert(
        cls,
        source: Memory,
        target: Memory,
        blocks: DifFormat | None = None,
        make: DifTarget | None = None,
    ) -> Self:
        """Copy blocks and append a field to each; `target` is 8 bytes longer per block."""
        options = _integrity(blocks=blocks, make=make)
        read = flat_bytes(source, "source")
        return cls("dif_insert", target=_written(target), source=read, options=options)

    @classmethod
    def dif_strip(
        cls,
        source: Memory,
        target: Memory,
        blocks: DifFormat | None = None,
        check: DifSource | None = None,
    ) -> Self:
        """Check blocks as `dif_check` does and copy them without their fields."""
        options = _integrity(blocks=blocks, check=check)
        read = flat_bytes(source, "source")
        return cls("dif_strip", target=_written(target), source=read, options=options)

    @classmethod
    def dif_update(
        cls,
        source: Memory,
        target: Memory,
        blocks: DifFormat | None = None,
        check: DifSource | None = None,
        make: DifTarget | None = None,
    ) -> Self:
        """Check blocks as `dif_check` does and copy them with new fields."""
        options = _integrity(blocks=blocks, check=check, make=make)
        read = flat_bytes(source, "source")
        return cls("dif_update", target=_written(target), source=read, options=options)

    @classmethod
    def cache_flush(cls, target: Memory) -> Self:
        """Write the lines of `target` back to memory and drop them from the caches."""
        return cls("cache_flush", target=_written(target))


@dataclass(frozen=True, slots=True)
class Completion:
    """Outcome of a job, or of one operation of a batch. Fields that do not apply are zero.

    Attributes:
        state: "done", "failed" or "stopped".
        cause: Why it failed; otherwise "none".
        fell_back: A mover other than requested, or a processor instead of a device, did part of the
            work; `fallback_cause` says why.
        late_write_possible: A device that timed out may still write to the target.
        bytes_done: Bytes done, not necessarily a prefix.
        bytes_by_device: Part of `bytes_done` done by devices.
        device_status: First error status of a device; 0 if none.
        fault_address: Address of the page fault; 0 unless that is the cause.
        different: Comparison or delta: whether there is a difference.
        difference_offset: Comparison: offset of the first difference in bytes.
        crc: Checksum: its value.
        page_faults: Page faults of devices.
        retries: Times that started work waited for a full queue.
        delta_bytes: create_delta: length of the record.
        record_full: create_delta: the differences did not fit.
        dif_errors: Errors of the first bad block: "guard", "application", "reference", "all_ones".
        source_tags: Integrity fields: source tags of the block after the last one done.
        target_tags: Integrity fields: target tags of that block.
    """

    state: str
    cause: str
    fell_back: bool
    late_write_possible: bool
    bytes_done: int
    bytes_by_device: int
    device_status: int
    fault_address: int
    different: bool
    difference_offset: int
    crc: int
    page_faults: int
    retries: int
    delta_bytes: int
    record_full: bool
    dif_errors: tuple[str, ...] = ()
    source_tags: DifTags = _NO_TAGS
    target_tags: DifTags = _NO_TAGS

    def __repr__(self) -> str:
        """Show the state and all non-zero fields."""
        told = {name: getattr(self, name) for name in self.__slots__[1:-2]}  # Without the tags.
        found = [f"{name}={each!r}" for name, each in told.items() if each and each != "none"]
        return f"Completion({', '.join([repr(self.state), *found])})"

    @property
    def path(self) -> str:
        """What did the bytes: "dsa", "cpu" or "both"; "none" if there are none."""
        if self.bytes_done == 0:
            return "none"
        if self.bytes_by_device == 0:
            return "cpu"
        return "dsa" if self.bytes_by_device >= self.bytes_done else "both"

    @property
    def fallback_cause(self) -> str:
        """Reason for the fallback, as a sentence; empty without one."""
        if not self.fell_back:
            return ""
        if self.device_status != 0:
            return _core.explain_device_status(self.device_status)
        if self.late_write_possible:
            return "The device did not answer in time."
        return (
            "No device that can do it took it: there is none, or its queue was full for too long; "
            "see Engine.notes and 'headrace doctor'."
        )


class JobFailedError(Error, RuntimeError):
    """A job failed, or was stopped before it was done.

    Attributes:
        completion: The completion, with details such as `dif_errors`; None if not known.
    """

    def __init__(
        self,
        tried: str,
        cause: str,
        remedy: str = "",
        os_errno: int = 0,
        completion: Completion | None = None,
    ) -> None:
        super().__init__(tried, cause, remedy, os_errno)
        self.completion = completion

    def __reduce__(self) -> tuple[type["Error"], tuple[Any, ...]]:
        return type(self), (self.tried, self.cause, self.remedy, self.os_errno, self.completion)


def completion_of(native: dict[str, Any]) -> Completion:
    """Convert a completion of the extension module."""
    if errors := native.get("dif_errors"):
        names = tuple(name for bit, name in enumerate(_DIF_ERRORS) if errors >> bit & 1)
        native["dif_errors"] = names
    for tags in ("source_tags", "target_tags"):
        if tags in native:
            native[tags] = DifTags(**native[tags])
    return Completion(**native)


def checked(completion: Completion, parts: Sequence[Completion] = ()) -> Completion:
    """Return `completion` if it is done, else raise a JobFailedError with it.

    Args:
        completion: Of the job.
        parts: Of each operation, if the job is a batch.
    """
    if completion.state == "done":
        return completion
    cause = f"{_cause_of(completion)} after {counted(completion.bytes_done, 'byte')}"
    # The text names the first root cause rather than an operation skipped by a fence.
    failed = [(at, part) for at, part in enumerate(parts) if part.state == "failed"]
    first = min(failed, key=lambda each: each[1].cause == "fence_broken", default=None)
    if first is not None:
        cause += f": operation {first[0]} failed by {_cause_of(first[1])}"
    if len(failed) > 1:
        cause += f", and {counted(len(failed) - 1, 'other')} failed"
    worst = completion if first is None else first[1]
    remedy = "submit it again"
    if worst.state == "failed":
        said = _core.explain_cause(worst.cause)
        remedy = said[:1].lower() + said[1:].rstrip(".")
    raise JobFailedError("complete a job", cause, remedy, completion=completion)


def _cause_of(completion: Completion) -> str:
    cause = "it was stopped" if completion.state == "stopped" else completion.cause
    if completion.dif_errors:
        cause += f" ({', '.join(completion.dif_errors)})"
    if completion.fault_address:
        cause += f" at {completion.fault_address:#x}"
    return cause


def as_operation(
    operation: Operation | None,
    source: Any,  # noqa: ANN401 - Checked.
    target: Any,  # noqa: ANN401
) -> Operation:
    """Return `operation`, or a copy of `source` to `target` if it is None."""
    if operation is None:
        return Operation.copy(source=source, target=target)
    if source is not None or target is not None:
        raise InvalidArgumentError(
            "submit an operation", "it has its own buffers", "pass the operation alone"
        )
    tried = "submit an operation (of a copy, pass source= and target=)"
    return instance_of(operation, Operation, tried)


def _written(target: object) -> ByteArray:
    return flat_bytes(target, "target", writable=True)


def _crc(seed: int, *, raw: bool, reflect_data: bool) -> dict[str, object]:
    seed = whole_number(seed, "take the seed of a checksum", 0, _SEED_MAX)
    return {"seed": seed, "raw": bool(raw), "reflect_data": bool(reflect_data)}


_INTEGRITY: dict[str, tuple[type[object], str]] = {
    "blocks": (DifFormat, "take the format of integrity fields"),
    "check": (DifSource, "take the check of integrity fields"),
    "make": (DifTarget, "take the making of integrity fields"),
}


def _integrity(**given: object) -> dict[str, object]:
    """Options of integrity fields; None is the default of each."""
    found = {}
    for name, value in given.items():
        kind, tried = _INTEGRITY[name]
        found[name] = instance_of(value or kind(), kind, tried)
    return found
