# SPDX-License-Identifier: Apache-2.0
"""Operations: what each does, and that a device and a processor give the same bytes and results.

On a machine without devices the path "dsa" is processors, too; test_engine_emulated.py runs
this file on emulated devices, where HEADRACE_TEST_DEVICES is set.
"""

import os
import struct
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace import DifFormat, DifSource, DifTags, DifTarget
from headrace import Operation as Op

Bytes = npt.NDArray[np.uint8]
PAGE_BYTES = 4096
BYTES_MAX = 20_000
FOUND = (
    "state",
    "cause",
    "bytes_done",
    "different",
    "difference_offset",
    "crc",
    "delta_bytes",
    "record_full",
    "dif_errors",
    "source_tags",
    "target_tags",
)
HAS_DEVICES = "HEADRACE_TEST_DEVICES" in os.environ


@pytest.fixture(scope="module")
def both() -> Iterator[headrace.Engine]:
    with headrace.Engine() as made:
        assert any(mover.hardware for mover in made.mover_infos) >= HAS_DEVICES
        yield made


def paged(content: Bytes) -> Bytes:
    """A copy of it that begins with a page."""
    room = np.zeros(content.size + PAGE_BYTES, np.uint8)
    first = -room.ctypes.data % PAGE_BYTES
    place = room[first : first + content.size]
    place[:] = content
    return place


def done(engine: headrace.Engine, operation: Op, path: str) -> headrace.Completion:
    job = engine.submit(operation, path=path)  # type: ignore[call-overload]
    job.wait()
    completion = job.completion
    assert completion is not None
    return completion  # type: ignore[no-any-return]


Make = Callable[[list[Bytes]], Op]


def words() -> st.SearchStrategy[int]:
    return st.integers(0, (1 << 64) - 1)


@st.composite
def tags(draw: st.DrawFn) -> DifTags:
    return DifTags(
        draw(st.integers(0, (1 << 32) - 1)),
        draw(st.integers(0, (1 << 16) - 1)),
        draw(st.sampled_from([0, 0xFF, 0xFFFF])),
    )


def _fresh(random: np.random.Generator, size: int) -> Bytes:
    return random.integers(0, 256, size, np.uint8)


def _nearly(draw: st.DrawFn, random: np.random.Generator, content: Bytes) -> Bytes:
    other = content.copy()
    for _ in range(draw(st.integers(0, 12))):
        other[random.integers(other.size)] ^= 1
    return other


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Bytes], Make]:  # noqa: C901, PLR0911 - By kind.
    """Memory, and what makes an operation on a copy of it."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))

    def fresh(size: int) -> Bytes:
        return _fresh(random, size)

    def nearly(content: Bytes) -> Bytes:
        return _nearly(draw, random, content)

    kind = draw(st.sampled_from([*KINDS]))
    size = draw(st.integers(1, BYTES_MAX))
    eights = -(-size // 8) * 8
    if kind in ("copy", "copy_crc", "crc"):
        memory = [fresh(size), fresh(size)]
        seed = draw(st.integers(0, (1 << 32) - 1))
        raw, reflect = draw(st.booleans()), draw(st.booleans())
        if kind == "copy":
            return memory, lambda m: Op.copy(source=m[0], target=m[1]).into_cache()
        if kind == "crc":
            return memory, lambda m: Op.crc(m[0], seed=seed, raw=raw, reflect_data=reflect)
        return memory, lambda m: Op.copy_crc(
            source=m[0], target=m[1], seed=seed, raw=raw, reflect_data=reflect
        ).durable()
    if kind in ("fill", "fill_16", "compare_pattern"):
        low, high = draw(words()), draw(words())
        if kind == "fill":
            return [fresh(size)], lambda m: Op.fill(m[0], low)
        if kind == "fill_16":
            return [fresh(size)], lambda m: Op.fill_16(m[0], low, high)
        repeated = np.frombuffer(low.to_bytes(8, "little") * (eights // 8), np.uint8)[:size]
        return [nearly(repeated)], lambda m: Op.compare_pattern(m[0], low)
    if kind == "compare":
        content = fresh(size)
        return [content, nearly(content)], lambda m: Op.compare(m[0], m[1])
    if kind == "dual_copy":
        memory = [fresh(size), fresh(size), fresh(size)]
        return memory, lambda m: Op.dual_copy(source=m[0], target=m[1], second_target=m[2])
    if kind == "create_delta":
        content = fresh(eights)
        memory = [np.zeros(draw(st.sampled_from([80, 160])), np.uint8), content, nearly(content)]
        return memory, lambda m: Op.create_delta(m[0], m[1], m[2])
    if kind == "apply_delta":
        entries = draw(st.integers(1, 9))
        places = np.sort(random.integers(0, eights // 8 + draw(st.integers(0, 1)), entries))
        record = np.zeros((entries, 10), np.uint8)
        record[:, :2] = places.astype("<u2")[:, None].view(np.uint8)
        record[:, 2:] = fresh(8 * entries).reshape(entries, 8)
        return [fresh(eights), record.reshape(-1)], lambda m: Op.apply_delta(m[0], m[1])
    if kind == "cache_flush":
        return [fresh(size)], lambda m: Op.cache_flush(m[0])
    if kind in ("no_op", "drain"):
        return [], lambda _: Op.no_op() if kind == "no_op" else Op.drain()
    return _dif_case(draw, kind, random)


def _dif_case(draw: st.DrawFn, kind: str, random: np.random.Generator) -> tuple[list[Bytes], Make]:
    """The same of integrity fields."""
    blocks = DifFormat(
        draw(st.sampled_from([512, 520, 4096, 4104])), draw(st.booleans()), draw(st.booleans())
    )
    count = draw(st.integers(1, 4))
    plain, with_fields = count * blocks.block_bytes, count * (blocks.block_bytes + 8)
    make = DifTarget(draw(tags()), draw(st.booleans()), draw(st.booleans()))
    if kind == "dif_insert":
        memory = [_fresh(random, plain), _fresh(random, with_fields)]
        return memory, lambda m: Op.dif_insert(m[0], m[1], blocks, make)
    source = np.zeros(with_fields, np.uint8)
    with headrace.Engine(threads_per_node=1, queues=()) as maker:
        maker.run(Op.dif_insert(_fresh(random, plain), source, blocks, make))
    expected = draw(st.sampled_from([make.tags, draw(tags())]))
    check = DifSource(
        expected,
        fixed_reference=make.fixed_reference,
        increment_application=make.increment_application,
        check_guard=draw(st.booleans()),
        skip_ones_in_tags=draw(st.booleans()),
    )
    source = draw(st.sampled_from([source, _nearly(draw, random, source)]))
    if kind == "dif_check":
        return [source], lambda m: Op.dif_check(m[0], blocks, check)
    if kind == "dif_strip":
        return [source, _fresh(random, plain)], lambda m: Op.dif_strip(m[0], m[1], blocks, check)
    again = DifTarget(draw(tags()), keep_guard=draw(st.booleans()))
    memory = [source, _fresh(random, with_fields)]
    return memory, lambda m: Op.dif_update(m[0], m[1], blocks, check, again)


KINDS = (
    "no_op",
    "drain",
    "copy",
    "fill",
    "fill_16",
    "compare",
    "compare_pattern",
    "create_delta",
    "apply_delta",
    "dual_copy",
    "crc",
    "copy_crc",
    "dif_check",
    "dif_insert",
    "dif_strip",
    "dif_update",
    "cache_flush",
)


@settings(max_examples=300, deadline=None)
@given(case=cases())
def test_a_device_and_a_processor_do_the_same(
    both: headrace.Engine, case: tuple[list[Bytes], Make]
) -> None:
    memory, make = case
    by_device = [paged(content) for content in memory]
    by_processor = [paged(content) for content in memory]
    operation = make(by_device)
    told = done(both, operation, "dsa")
    wanted = done(both, make(by_processor), "cpu")
    assert [getattr(told, name) for name in FOUND] == [getattr(wanted, name) for name in FOUND]
    for one, other in zip(by_device, by_processor, strict=True):
        np.testing.assert_array_equal(one, other)
    assert wanted.path in ("cpu", "none")
    assert wanted.bytes_by_device == 0
    if HAS_DEVICES and not told.fell_back and told.state == "done" and told.bytes_done:
        assert told.path == "dsa"
    assert bool(told.fallback_cause) == told.fell_back


def test_operations_do_what_they_say(both: headrace.Engine) -> None:
    source = paged(np.random.default_rng(1).integers(0, 256, 100_001, np.uint8))
    one, other = paged(np.zeros_like(source)), paged(np.zeros_like(source))
    assert (
        both.run(Op.dual_copy(source=source, target=one, second_target=other)).bytes_done
        == source.size
    )
    np.testing.assert_array_equal(source, one)
    np.testing.assert_array_equal(source, other)

    filled = bytearray(17)
    both.run(Op.fill_16(filled, 1, 2))
    assert filled == bytes([1, *[0] * 7, 2, *[0] * 7, 1])

    before, after = paged(source[:4096]), paged(source[:4096])
    after[[8, 4095]] ^= 1
    record = paged(np.zeros(80, np.uint8))
    found = both.run(Op.create_delta(record, before, after))
    assert (found.different, found.record_full, found.delta_bytes) == (True, False, 20)
    both.run(Op.apply_delta(before, record[: found.delta_bytes]))
    np.testing.assert_array_equal(before, after)

    make = DifTarget(DifTags(reference=9, application=4))
    blocks, check = DifFormat(520), DifSource(make.tags)
    plain, fields, stripped = source[: 520 * 3], bytearray(528 * 3), bytearray(520 * 3)
    assert both.run(Op.dif_insert(plain, fields, blocks, make)).target_tags.reference == 12
    assert both.run(Op.dif_check(fields, blocks, check)).state == "done"
    both.run(Op.dif_strip(fields, stripped, blocks, check))
    assert stripped == plain.tobytes()
    updated = bytearray(528 * 3)
    both.run(Op.dif_update(fields, updated, blocks, check, make))
    assert updated == fields
    fields[528] ^= 1
    with pytest.raises(
        headrace.JobFailedError, match=r"integrity_error \(guard\) after 528"
    ) as bad:
        both.run(Op.dif_check(fields, blocks, check))
    assert bad.value.completion is not None
    assert bad.value.completion.dif_errors == ("guard",)
    with pytest.raises(headrace.JobFailedError, match="application"):
        both.run(Op.dif_check(fields, blocks, DifSource(DifTags(9, 5))))


def reversed_bits(number: int, width: int) -> int:
    return int(f"{number:0{width}b}"[::-1], 2)


def crc32c(content: bytes, seed: int, *, raw: bool, reflect_data: bool) -> int:
    """Bit by bit, as the specification of the device has it."""
    register = reversed_bits(seed, 32) if raw else seed ^ 0xFFFFFFFF
    for byte in content:
        register ^= byte if reflect_data else reversed_bits(byte, 8)
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return reversed_bits(register, 32) if raw else register ^ 0xFFFFFFFF


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("reflect_data", [False, True])
def test_checksums_are_those_of_the_specification(
    both: headrace.Engine, raw: bool, reflect_data: bool
) -> None:
    content, target = bytes(range(100)), bytearray(100)
    wanted = crc32c(content, 0x12345678, raw=raw, reflect_data=reflect_data)
    for path in ("dsa", "cpu"):
        for operation in (
            Op.crc(content, seed=0x12345678, raw=raw, reflect_data=reflect_data),
            Op.copy_crc(
                source=content, target=target, seed=0x12345678, raw=raw, reflect_data=reflect_data
            ),
        ):
            assert both.run(operation, path=path).crc == wanted
    assert target == content


@pytest.mark.parametrize(
    "make, words",
    [
        (
            lambda m: Op.copy(source=m[8:72], target=m[:64]),
            "overlaps another span .copy: source of 64 bytes at 0x",
        ),
        (
            lambda m: Op.copy(source=m[:64], target=m[:32]),
            "copy: source of 64 bytes, target of 32 bytes",
        ),
        (lambda m: Op.compare(m[:64], m[:32]), "compare: source of 64 bytes, other source of 32"),
        (
            lambda m: Op.dif_check(m[:100]),
            "not a multiple .* .dif_check: source of 100 bytes at 0x",
        ),
        (
            lambda m: Op.dif_strip(m[:520], m[520:1000]),
            "dif_strip: source of 520 bytes, target of 480",
        ),
        (lambda m: Op.create_delta(m[:80], m[81:89], m[96:104]), "not a multiple .*create_delta: "),
        (lambda m: Op.apply_delta(m[:64], m[100:111]), "not a multiple .*apply_delta: "),
        (
            lambda m: Op.dual_copy(source=m[:64], target=m[64:128], second_target=m[128:192]),
            "not a multiple .*dualcast: ",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_with_its_figures(
    both: headrace.Engine, make: Callable[[Bytes], Op], words: str
) -> None:
    memory = paged(np.zeros(PAGE_BYTES, np.uint8))
    for call in (both.run, both.submit):
        with pytest.raises(headrace.InvalidArgumentError, match=words):
            call(make(memory))
    with pytest.raises(headrace.InvalidArgumentError, match="operation 1: .*" + words):
        both.submit_batch([Op.no_op(), make(memory)])


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Op.create_delta(bytearray(79), b"12345678", b"12345678"), "79 bytes.*at least 80"),
        (lambda: Op.create_delta(bytes(80), b"12345678", b"12345678"), "record: it is read-only"),
        (
            lambda: Op.dual_copy(source=b"x", target=bytearray(1), second_target=b"y"),
            "second target: it is read-only",
        ),
        (lambda: Op.cache_flush(b"x"), "target: it is read-only"),
        (lambda: Op.fill_16(bytearray(1), 0, 1 << 64), "pattern of a fill"),
        (lambda: DifFormat(513), "blocks of 513 bytes"),
        (lambda: DifTags(1 << 32), "tags of integrity fields"),
        (lambda: DifTags(0, 1 << 16), "tags of integrity fields"),
    ],
)
def test_operands_that_cannot_be_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=words):
        make()


def test_arguments_of_another_kind_are_told_so(both: headrace.Engine) -> None:
    with pytest.raises(headrace.TypeMismatchError, match=r"pass a headrace\.DifFormat"):
        Op.dif_check(bytes(520), 512)  # type: ignore[arg-type]
    with pytest.raises(headrace.TypeMismatchError, match=r"pass a headrace\.DifTags"):
        DifSource(7)  # type: ignore[arg-type]
    with pytest.raises(headrace.TypeMismatchError, match=r"pass a headrace\.Operation"):
        both.run(b"x")  # type: ignore[arg-type]
    with pytest.raises(headrace.TypeMismatchError, match=r"pass a headrace\.Operation"):
        both.submit_batch([b"x"])  # type: ignore[list-item]


def fields_of(blocks: bytearray) -> list[tuple[int, int, int]]:
    """Guard, application and reference tag of each block of 512 bytes."""
    ends = [bytes(blocks[at + 512 : at + 520]) for at in range(0, len(blocks), 520)]
    return [struct.unpack(">HHI", end) for end in ends]


def inserted(engine: headrace.Engine, make: DifTarget, blocks: DifFormat) -> bytearray:
    target = bytearray(1040)
    engine.run(Op.dif_insert(bytes(range(256)) * 4, target, blocks, make))
    return target


def test_every_option_of_a_target_means_what_it_says(both: headrace.Engine) -> None:
    def made(*, blocks: DifFormat | None = None, **options: bool) -> list[tuple[int, int, int]]:
        make = DifTarget(DifTags(7, 0x1234, 0x00FF), **options)
        return fields_of(inserted(both, make, blocks or DifFormat()))

    plain = made()
    assert [field[1:] for field in plain] == [(0x1200, 7), (0x1200, 8)]
    assert [field[2] for field in made(fixed_reference=True)] == [7, 7]
    counted = fields_of(
        inserted(both, DifTarget(DifTags(7, 4), increment_application=True), DifFormat())
    )
    assert [field[1] for field in counted] == [4, 5]
    inverted = made(blocks=DifFormat(invert_guard=True))
    assert [field[0] for field in inverted] == [field[0] ^ 0xFFFF for field in plain]
    seeded = made(blocks=DifFormat(invert_seed=True))
    assert seeded[0][0] not in (plain[0][0], inverted[0][0])

    source = inserted(both, DifTarget(DifTags(7, 4)), DifFormat())
    source[512] ^= 1  # A guard that is wrong, to be told from one that is made.
    check = DifSource(DifTags(7, 4), check_guard=False)
    for kept, option in enumerate(("keep_guard", "keep_application", "keep_reference")):
        updated = bytearray(1040)
        make = DifTarget(DifTags(99, 98), **{option: True})
        both.run(Op.dif_update(source, updated, None, check, make))
        for before, after in zip(fields_of(source), fields_of(updated), strict=True):
            same = [one == other for one, other in zip(before, after, strict=True)]
            assert same[1:] == [place == kept for place in (1, 2)], option
        assert (fields_of(updated)[0][0] == fields_of(source)[0][0]) == (kept == 0)


def test_every_option_of_a_source_means_what_it_says(both: headrace.Engine) -> None:
    def errors(blocks: bytearray, tags: DifTags, **options: bool) -> tuple[str, ...]:
        check = DifSource(tags, **options)
        return done(both, Op.dif_check(blocks, None, check), "auto").dif_errors

    tags = DifTags(7, 4)
    good = inserted(both, DifTarget(tags), DifFormat())
    assert errors(good, tags) == ()
    broken = bytearray(good)
    broken[0] ^= 1
    assert errors(broken, tags) == ("guard",)
    assert errors(broken, tags, check_guard=False) == ()
    assert errors(good, DifTags(8, 4)) == ("reference",)
    assert errors(good, DifTags(8, 4), check_reference=False) == ()
    assert errors(good, DifTags(7, 5)) == ("application",)
    assert errors(good, DifTags(7, 5, 0x0001)) == ()
    fixed = inserted(both, DifTarget(tags, fixed_reference=True), DifFormat())
    assert errors(fixed, tags) == ("reference",)
    assert errors(fixed, tags, fixed_reference=True) == ()
    counted = inserted(both, DifTarget(tags, increment_application=True), DifFormat())
    assert errors(counted, tags) == ("application",)
    assert errors(counted, tags, increment_application=True) == ()
    ones = bytearray(broken)
    ones[514:516] = b"\xff" * 2
    assert errors(ones, tags, skip_ones_in_application=True) == ()
    assert errors(ones, tags, skip_ones_in_tags=True) != ()
    ones[514:520] = b"\xff" * 6
    assert errors(ones, tags, skip_ones_in_tags=True) == ()
    assert errors(ones, tags, skip_ones_in_field=True) != ()
    ones[512:520] = b"\xff" * 8
    assert errors(ones, tags, skip_ones_in_field=True) == ()
    both_options = {"skip_ones_in_field": True, "ones_in_field_are_an_error": True}
    assert errors(ones, tags, **both_options) == ("all_ones",)
