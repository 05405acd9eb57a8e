# SPDX-License-Identifier: Apache-2.0
"""Reports for people: lines and tables that fit the terminal, and plain text in files and pipes.

Words are never broken. A table that is too wide first folds titles and texts, then omits the least
important columns and says so, then splits into several tables that repeat the first column.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self, TextIO

_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
# Width for files and pipes; fits the widest matrix of a two-socket machine.
_PLAIN_WIDTH = 160
_Paint = Callable[[str, str], str]
_LINE_MAX = 100  # Longer lines of prose are hard to read.


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        right: Align right, for figures.
        folds: The cells may be folded between words.
        optional: 0: always shown; otherwise the highest is left out first.
        key: The column identifies a row and is repeated if the table is split; always true for the
            first column.
    """

    title: str
    right: bool = False
    folds: bool = False
    optional: int = 0
    key: bool = False


def figures(*titles: str) -> list[Column]:
    return [Column(title, right=True) for title in titles]


class Styled(str):
    """A text with a terminal style: "bold", "bold red"."""

    __slots__ = ("style",)
    style: str

    def __new__(cls, text: str, style: str) -> Self:
        made = super().__new__(cls, text)
        made.style = style
        return made


class Report:
    """Prints lines and tables for people."""

    def __init__(self, stream: TextIO | None = None, width: int | None = None) -> None:
        """Print to stdout, in the width of its terminal or $COLUMNS."""
        self._stream = stream or sys.stdout
        is_terminal = self._stream.isatty()
        if width is None and (is_terminal or "COLUMNS" in os.environ):
            width = shutil.get_terminal_size().columns
        self.width = width
        """Columns; None: no limit."""
        self._is_coloured = (
            is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )

    def say(self, text: str = "", style: str = "", head: str = "") -> None:
        """Print a paragraph, folded between words if there is a width.

        Args:
            text: The paragraph; line feeds are kept.
            style: Style of all lines, as of `Styled`.
            head: Prefix of the first line; the others are indented by its width.
        """
        for line in text.split("\n"):
            for folded in self._folded(line, len(head)):
                self._put(head + self._painted(folded, style))
                head = " " * len(head)

    def table(
        self, columns: Sequence[Column], rows: Iterable[Sequence[str]], indent: int = 0
    ) -> None:
        width = (self.width or _PLAIN_WIDTH) - indent
        for line in Table(columns, list(rows), width, self._painted).lines():
            self._put(" " * indent + line if line else "")

    def _folded(self, line: str, indent: int) -> list[str]:
        if self.width is None:
            return [line]
        room = max(20, min(self.width - indent, _LINE_MAX))
        lead = len(line) - len(line.lstrip())
        return _fold(line, room, " " * lead)

    def _painted(self, text: str, style: str) -> str:
        if not self._is_coloured or not style or not text:
            return text
        codes = ";".join(str(_CODES[word]) for word in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m"

    def _put(self, line: str) -> None:
        self._stream.write(f"{line.rstrip()}\n")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of at most `width` columns, unless a single word is wider."""

    columns: Sequence[Column]
    cells: Sequence[Sequence[str]]
    width: int
    painted: _Paint = lambda text, _style: text

    def lines(self) -> Iterator[str]:
        shown = list(range(len(self.columns)))
        left_out: list[str] = []
        while not any(self._widths(shown, gap) for gap in (2, 1)):
            least = max(shown, key=lambda index: self.columns[index].optional)
            if not self.columns[least].optional or len(shown) == 1:
                yield from self._stacked(shown)
                break
            shown.remove(least)
            left_out.append(self.columns[least].title)
        else:
            yield from self._block(shown, 2 if self._widths(shown, 2) else 1)
        if left_out:
            yield from _fold(
                f"(not shown at {self.width} columns: {', '.join(left_out)})", self.width
            )

    def _stacked(self, shown: list[int]) -> Iterator[str]:
        """Yield several tables, each with the key columns; or a list of rows."""
        keys = [index for index in shown if self.columns[index].key] or shown[:1]
        blocks: list[list[int]] = []
        for index in (each for each in shown if each not in keys):
            if blocks and self._widths([*blocks[-1], index], 2):
                blocks[-1].append(index)
            elif self._widths([*keys, index], 2):
                blocks.append([*keys, index])
            else:
                blocks = []
                break
        if not blocks:
            yield from self._listed(shown)
        for number, block in enumerate(blocks):
            if number:
                yield ""
            yield from self._block(block, 2)

    def _listed(self, shown: list[int]) -> Iterator[str]:
        """Yield each row as a paragraph of "title: text"."""
        for number, row in enumerate(self.cells):
            if number:
                yield ""
            for index in shown:
                title = self.columns[index].title
                text = f"{title}: {row[index]}" if title else row[index]
                for line in _fold(text, self.width, "  "):
                    yield self.painted(line, "bold" if index == shown[0] else "")

    def _widths(self, shown: list[int], gap: int) -> list[int]:
        """Widths of the columns; empty if they do not fit."""
        least, best = [], []
        for index in shown:
            column = self.columns[index]
            texts = [row[index] for row in self.cells]
            natural = max((len(text) for text in texts), default=0)
            longest = max((_longest_word(text) for text in texts), default=0)
            below = longest if column.folds else natural
            least.append(max(below, _longest_word(column.title)))
            best.append(max(natural, len(column.title)))
        room = self.width - gap * (len(shown) - 1) - sum(least)
        if room < 0:
            return []
        while room > 0:
            # Widen the column that lacks most.
            lack, place = max((b - w, -i) for i, (w, b) in enumerate(zip(least, best, strict=True)))
            if lack <= 0:
                break
            least[-place] += 1
            room -= 1
        return least

    def _block(self, shown: list[int], gap: int) -> Iterator[str]:
        widths = dict(zip(shown, self._widths(shown, gap), strict=True))

        def line(texts: Sequence[str], style: str) -> Iterator[str]:
            folded = [
                _fold(text, max(1, width))
                for text, width in zip(texts, widths.values(), strict=True)
            ]
            for number in range(max(map(len, folded))):
                parts = []
                for (index, width), text, lines in zip(widths.items(), texts, folded, strict=True):
                    part = lines[number] if number < len(lines) else ""
                    pad = " " * (width - len(part))
                    styles = " ".join(filter(None, [style, getattr(text, "style", "")]))
                    part = self.painted(part, styles)
                    parts.append(pad + part if self.columns[index].right else part + pad)
                yield (" " * gap).join(parts).rstrip()

        titles = [self.columns[index].title for index in shown]
        if any(titles):
            yield from line(titles, "bold")
        for row in self.cells:
            yield from line([row[index] for index in shown], "")


def _longest_word(text: str) -> int:
    return max((len(word) for word in text.split()), default=0)


def _fold(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]
