# SPDX-License-Identifier: Apache-2.0
"""Writes the page: page.html, with the figures as drawings."""

import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from headrace._apps.picture import matplotlib_defaults
from headrace_lab.families.measure import value_text
from headrace_lab.families.picture import Panel, draw_panels
from headrace_lab.report.cards import Card
from headrace_lab.report.guidelines import Guideline

_INK = "#010203"
"""Placeholder colour in drawings, replaced by that of the surrounding text."""


def page_of(
    *,
    title: str,
    machine: Mapping[str, str],
    headline: str,
    findings: Iterable[tuple[str, str, str]],
    cards: Sequence[Card],
    guidelines: Sequence[Guideline],
    remarks: Sequence[tuple[str, str]],
) -> str:
    """Write the page.

    Findings are the doctor's: checks, state and finding. Remarks have a kind ("partial", "emulated"
    or "unpinned") and a sentence.
    """
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    by_source: dict[str, list[Guideline]] = {}
    for each in guidelines:
        by_source.setdefault(each.source, []).append(each)
    states = Counter(each.verdict.state for each in guidelines)
    return templates.get_template("page.html").render(
        title=title,
        machine=machine,
        headline=headline,
        findings=list(findings),
        figures=[_figure(card, svg) for card, svg in zip(cards, _drawings(cards), strict=True)],
        titles={card.name: card.title for card in cards},
        guidelines=by_source,
        states=f"Of {states.total()}: " + ", ".join(f"{n} {state}" for state, n in states.items()),
        remarks=remarks,
    )


def _figure(card: Card, svg: str) -> dict[str, object]:
    kinds = dict.fromkeys(line.kind for line in card.panel.lines)
    label = escape(f"{card.title}, in {card.panel.metric}: {', '.join(kinds) or 'nothing'}")
    named = svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return {
        "card": card,
        "svg": Markup(named),  # noqa: S704 - Our own drawing.
        "rows": [
            (line.label, *(_cell(line.points.get(tick)) for tick in card.panel.ticks))
            for line in card.panel.lines
        ],
    }


def _cell(point: tuple[float, float, float] | None) -> str:
    if point is None:
        return ""
    middle, low, high = (value_text(value, "") for value in point)
    return middle if low == high else f"{middle} ({low} to {high})"


def _drawings(cards: Sequence[Card]) -> list[str]:
    with matplotlib_defaults():
        import matplotlib as mpl  # noqa: PLC0415 - Costs half a second.

        inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
        # Text stays text: smaller, and accessible. A fixed salt makes the file deterministic.
        defaults: Any = {
            "svg.fonttype": "none",
            "svg.hashsalt": "headrace",
            "font.size": 10,
            **dict.fromkeys(inked, _INK),
        }
        with mpl.rc_context(defaults):
            return [
                _drawing(card.panel, f"f{number}-") if card.panel.lines else ""
                for number, card in enumerate(cards)
            ]


def _drawing(panel: Panel, prefix: str) -> str:
    """Draw as an SVG element for the page: without a fixed size, and with unique ids."""
    shown = Panel("", panel.metric, panel.lines)
    picture = draw_panels([shown], "", "", width=4.0)
    written = io.StringIO()
    picture.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg [^>]*?)\swidth="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg [^>]*?)\sheight="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = re.sub(r'href="#', f'href="#{prefix}', text)
    text = text.replace("url(#", f"url(#{prefix}")
    return text.replace(_INK, "currentColor")
