# SPDX-License-Identifier: Apache-2.0
"""Types of option values, and options shared by several commands.

Errors have one form: "--threads: '0' is not a whole number from 1 to 2". The same words describe
the value in the reference of the command.
"""

import os
import re
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Generic, NoReturn, TypeVar

import click
from click.shell_completion import CompletionItem

from headrace._extras import missing_package
from headrace._files import Output
from headrace.errors import Error, InvalidArgumentError

T = TypeVar("T")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

ROUNDS_MAX = 10_000
BYTES_MAX = 1 << 60


class Value(click.ParamType[T], Generic[T]):
    """Type of an option's value, converted from text.

    Attributes:
        wanted: Valid values, such as "a whole number from 1 to 16".
        documented: The same, independent of the machine, for the reference; empty if help has it.
    """

    def __init__(self, metavar: str, wanted: str) -> None:
        self.name = metavar.lower()
        self.metavar = metavar
        self.wanted = wanted
        self.documented = wanted

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        del param, ctx
        return self.metavar

    def convert(
        self,
        value: Any,  # noqa: ANN401 - As click's.
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> T:
        if not isinstance(value, str):
            done: T = value  # A converted default.
            return done
        try:
            return self.read(value)
        except InvalidArgumentError as error:
            self.fail(f"'{value}': {error.cause}; {error.remedy}", param, ctx)
        except Error:
            raise
        except ValueError:
            self.fail(f"{value!r} is not {self.wanted}", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the words of a choice, and files elsewhere; called by click."""
        del ctx, param
        if words := getattr(self, "words", ()):
            return [CompletionItem(word) for word in words if word.startswith(incomplete)]
        return [CompletionItem(incomplete, type="file")]

    def read(self, text: str) -> T:
        raise NotImplementedError


class Count(Value[int]):
    def __init__(self, least: int, greatest: int, why: str = "", metavar: str = "N") -> None:
        """Accept numbers from `least` to `greatest`; `why` is the reason for the limits."""
        because = f", {why}" if why else ""
        super().__init__(metavar, f"a whole number from {least} to {greatest}{because}")
        self._range = range(least, greatest + 1)

    def read(self, text: str) -> int:
        """Convert decimal digits only; int() also accepts "1_0", other digits and any length."""
        if re.fullmatch(r"[0-9]{1,19}", text) is None or int(text) not in self._range:
            raise ValueError
        return int(text)


class Threads(Count):
    """A number of threads, up to the number of processors that this process may use."""

    def __init__(self) -> None:
        super().__init__(1, len(os.sched_getaffinity(0)), "the processors allowed")
        self.documented = "a whole number up to that of the processors allowed"


class Size(Value[int]):
    def __init__(self, least: int = 0, greatest: int = BYTES_MAX) -> None:
        limits = ""
        if least > 1 or greatest < BYTES_MAX:
            from headrace._core import bytes_text  # noqa: PLC0415 - `run` has no limits.

            limits = f" from {bytes_text(least)}" if least > 1 else ""
            limits += f" to {bytes_text(greatest)}" if greatest < BYTES_MAX else ""
        super().__init__("SIZE", f"a size{limits}, such as 64KiB")
        self._least, self._greatest = least, greatest

    def read(self, text: str) -> int:
        from headrace import _core  # noqa: PLC0415 - Help needs no extension.

        try:
            size_bytes = int(_core.parse_bytes(text))
        except Error:
            raise ValueError from None
        if not self._least <= size_bytes <= self._greatest:
            raise ValueError
        return size_bytes


class Number(Value[float]):
    def __init__(self, least: float, greatest: float) -> None:
        super().__init__("N", f"a number from {least:g} to {greatest:,.0f}")
        self._least, self._greatest = least, greatest

    def read(self, text: str) -> float:
        if not self._least <= (number := float(text)) <= self._greatest:  # Refuses NaN, too.
            raise ValueError
        return number


_UNITS_S = {"ms": 0.001, "s": 1, "min": 60, "h": 3600}


class Duration(Value[float]):
    """A time with its unit, in seconds: 500ms, 90s, 5min, 1h."""

    def __init__(self, least_s: float, greatest_s: float) -> None:
        super().__init__(
            "TIME", f"a time from {least_s:g}s to {greatest_s:g}s with its unit: ms, s, min or h"
        )
        self._least_s, self._greatest_s = least_s, greatest_s

    def read(self, text: str) -> float:
        parts = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(ms|s|min|h)", text)
        if parts is None:
            raise ValueError
        time_s = float(parts[1]) * _UNITS_S[parts[2]]
        if not self._least_s <= time_s <= self._greatest_s:
            raise ValueError
        return time_s


class Choice(Value[str]):
    def __init__(self, *words: str, metavar: str = "") -> None:
        super().__init__(metavar or "|".join(words), either(words))
        self.words = words
        self.documented = "" if not metavar else self.documented

    def read(self, text: str) -> str:
        if text not in self.words:
            raise ValueError
        return text


class Name(Value[str]):
    def __init__(self, pattern: str, wanted: str, metavar: str = "NAME") -> None:
        """Accept full matches of the regular expression."""
        super().__init__(metavar, wanted)
        self._pattern = pattern

    def read(self, text: str) -> str:
        if re.fullmatch(self._pattern, text) is None:
            raise ValueError
        return text


class FilePath(Value[str]):
    """A path of a file or directory, not opened."""

    def __init__(self, metavar: str = "FILE", wanted: str = "a path") -> None:
        super().__init__(metavar, wanted)
        self.documented = ""

    def read(self, text: str) -> str:
        """Return the path, unless the system could never open it."""
        if not text or "\0" in text:
            raise ValueError
        return text


class OutputFile(Value[Output]):
    """An output file, opened when the command line is parsed, before any work."""

    def __init__(self, tried: str) -> None:
        """Accept writable files; `tried`, for errors: "write the profile to '{}'"."""
        super().__init__("FILE", "a path")
        self.documented = ""
        self._tried = tried

    def read(self, text: str) -> Output:
        if not text or "\0" in text:
            raise ValueError
        return Output(text, self._tried.format(text))


class Picture(OutputFile):
    def __init__(self, subject: str) -> None:
        """Accept writable .svg and .png files; `subject`, for errors: "the timeline"."""
        super().__init__(f"draw {subject} into '{{}}'")
        self.wanted = "a path that ends in .svg or .png"

    def read(self, text: str) -> Output:
        if not text.lower().endswith((".svg", ".png")):
            raise ValueError
        if find_spec("matplotlib") is None:
            tried = self._tried.format(text)
            raise missing_package(tried, ModuleNotFoundError(name="matplotlib"))
        return super().read(text)


def either(words: tuple[str, ...]) -> str:
    """Format "off, on or auto"."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


option = click.option
"""An option with a value; the default is given as text."""


def flag(*names: str, help: str) -> Decorator:  # noqa: A002 - As click's.
    return click.option(*names, is_flag=True, show_default=False, help=help)


json_option = flag("--json", "as_json", help="Print one JSON document and nothing else.")


def plot_option(subject: str) -> Decorator:
    return option(
        "--plot", type=Picture(subject), help=f"Draw {subject} into this .svg or .png file."
    )


def rounds_option(default: int, note: str = "") -> Decorator:
    return option(
        "--rounds", type=Count(1, ROUNDS_MAX), default=str(default), help=f"Measured rounds{note}."
    )


def threads_option(help: str) -> Decorator:  # noqa: A002 - As click's.
    """--threads; by default one per processor that this process may use."""
    return option(
        "--threads",
        type=Threads(),
        help=f"{help}; all processors that this process may use if not given.",
    )


command_argument = click.argument(
    "words", metavar="CMD...", nargs=-1, shell_complete=lambda *_: [CompletionItem("", type="file")]
)

profile_option = option(
    "--profile",
    type=FilePath(wanted="a path, or none"),
    help="Profile made by 'headrace tune', or 'none'; if not given, the one that is found.",
)

record_option = option(
    "--record",
    type=OutputFile("record the machine in '{}'"),
    help="Write what was found into this file as well, for --replay.",
)

replay_option = option(
    "--replay",
    type=FilePath(),
    help="Take the machine of this record, or a sample by its name, instead of this one.",
)


def refuse(sentence: str) -> NoReturn:
    raise click.UsageError(sentence)


def refuse_value(parameter: str, sentence: str) -> NoReturn:
    """End the command with a usage error about an option, such as "'x' is not a node"."""
    raise click.BadParameter(sentence, param_hint=parameter)


def refuse_two_on_stdout(parameter: str, output: Output | None, *, as_json: bool) -> None:
    """Refuse stdout as a file together with --json: the output would not be valid JSON."""
    if output is not None and output.is_stdout and as_json:
        refuse_value(parameter, f"'{output.path}' is stdout, and so is --json; name a file")
