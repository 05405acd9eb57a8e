# SPDX-License-Identifier: Apache-2.0
"""Errors: the table of classes, their sentence, and their way through pickle."""

import pickle

import pytest

import headrace
from headrace import _core, errors


@pytest.mark.parametrize(
    "kind, standard",
    [
        (headrace.InvalidArgumentError, ValueError),
        (headrace.NotFoundError, LookupError),
        (headrace.OutOfRangeError, OverflowError),
        (headrace.IoFailedError, OSError),
        (headrace.CorruptDataError, ValueError),
        (headrace.VersionMismatchError, ValueError),
        (headrace.TypeMismatchError, TypeError),
        (headrace.ClosedError, RuntimeError),
        (headrace.HardwareAbsentError, RuntimeError),
        (headrace.OutOfMemoryError, MemoryError),
        (headrace.CapacityExceededError, RuntimeError),
        (headrace.PermissionDeniedError, PermissionError),
        (headrace.UnsupportedError, RuntimeError),
    ],
)
def test_every_code_has_a_class_that_is_also_a_standard_one(
    kind: type[headrace.Error], standard: type[Exception]
) -> None:
    error = errors.from_code(kind.code, "do it", "it broke", "fix it", 0)
    assert type(error) is kind
    assert isinstance(error, headrace.Error)
    assert isinstance(error, standard)
    assert str(error) == "cannot do it: it broke; fix it"
    assert f"``{kind.code}``" in str(errors.__doc__)


def test_the_text_names_the_error_of_the_system() -> None:
    error = headrace.IoFailedError("read 'x'", "it cannot be opened", "", 2)
    assert str(error) == "cannot read 'x': it cannot be opened (No such file or directory)"
    assert error.errno == 2


def test_an_error_survives_pickle() -> None:
    error = headrace.IoFailedError("read 'x'", "it cannot be opened", "check it", 13)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(again) is headrace.IoFailedError
    assert str(again) == str(error)
    assert again.errno == 13


def test_an_error_of_the_library_arrives_with_its_parts() -> None:
    with pytest.raises(headrace.InvalidArgumentError) as caught:
        _core.parse_bytes("12 parsecs")
    assert caught.value.tried == "read '12 parsecs' as a size"
    assert caught.value.remedy.startswith("write it like")


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = headrace.nonsense


def test_every_public_name_can_be_had() -> None:
    for name in headrace.__all__:
        assert getattr(headrace, name) is not None
        assert name in dir(headrace)
