# SPDX-License-Identifier: Apache-2.0
"""Check the manual in Chromium, at the widths of a telephone and of a desktop.

Opens every page at both widths. Fails if a page writes an error to the console, scrolls sideways,
has a dead link, or looks the same in dark and light mode, or if the search does not find its
query.

Usage: check_manual.py DIRECTORY [--pictures DIRECTORY]
"""

from __future__ import annotations

import argparse
import functools
import http.server
import shutil
import sys
import threading
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

from playwright.sync_api import Page, sync_playwright
from playwright.sync_api import TimeoutError as NotFoundInTime

WIDTHS = (390, 1280)
PICTURED = ("index.html", "guide/start.html", "reference/cpp/engine.html")
SEARCHED = ("emulate", "dsa-in-ci", "channel")
NO_PAGES = ("genindex.html", "search.html", "py-modindex.html", "_static")
LINKS = "nodes => nodes.map(node => node.getAttribute('href'))"
IDS = "nodes => nodes.map(node => node.id || node.name)"
OVERHANG = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server without a request log or an icon."""

    def do_GET(self) -> None:
        """Answer a request."""
        if self.path == "/favicon.ico":
            self.send_response(http.HTTPStatus.NO_CONTENT)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def look_at(page: Page, root: str, path: str, pictures: Path | None) -> tuple[list[str], set[str]]:
    """Open one page at each width; return its errors and its links."""
    found: list[str] = []
    links: set[str] = set()
    heard: list[str] = []
    page.on("console", lambda said: heard.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: heard.append(str(error)))
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(root + path, wait_until="load")
        overhang = page.evaluate(OVERHANG)
        if overhang > 0:
            found.append(f"{path}: scrolls sideways by {overhang} px at {width} px")
        if pictures is not None and path in PICTURED:
            name = f"{path.removesuffix('.html').replace('/', '-')}-{width}.png"
            page.screenshot(path=pictures / name)
    backgrounds = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        backgrounds.add(page.evaluate(BACKGROUND))
    if len(backgrounds) == 1:
        found.append(f"{path}: light and dark look the same")
    page.emulate_media(color_scheme="light")
    for link in page.eval_on_selector_all("a[href]", LINKS):
        links.add(urljoin(root + path, link))
    found += [f"{path}: console: {line}" for line in heard]
    return found, links


def dead_links(directory: Path, root: str, links: dict[str, str], page: Page) -> list[str]:
    """Return links within the manual to a missing page or anchor; others are not followed."""
    found = []
    anchors: dict[str, set[str]] = {}
    for link, source in sorted(links.items()):
        if not link.startswith(root):
            continue
        target, anchor = urldefrag(link)
        path = unquote(target.removeprefix(root)) or "index.html"
        if not (directory / path).is_file():
            found.append(f"{source}: '{path}' leads nowhere")
        elif anchor and path.endswith(".html"):
            if path not in anchors:
                page.goto(root + path, wait_until="load")
                anchors[path] = set(page.eval_on_selector_all("[id], a[name]", IDS))
            if unquote(anchor) not in anchors[path]:
                found.append(f"{source}: '{path}' has no '#{anchor}'")
    return found


def main() -> int:
    """Check every page and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--pictures", type=Path)
    arguments = parser.parse_args()
    if arguments.pictures is not None:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
    handler = functools.partial(Quiet, directory=str(arguments.directory))
    found: list[str] = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}/"
        with sync_playwright() as player:
            browser = player.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            paths = [
                path.relative_to(arguments.directory).as_posix()
                for path in sorted(arguments.directory.rglob("*.html"))
            ]
            paths = [path for path in paths if not path.startswith(NO_PAGES)]
            links: dict[str, str] = {}
            for path in paths:
                page = browser.new_page()
                problems, targets = look_at(page, root, path, arguments.pictures)
                found += problems
                links |= dict.fromkeys(targets - links.keys(), path)
                page.close()
            page = browser.new_page()
            found += dead_links(arguments.directory, root, links, page)
            for word in SEARCHED:
                page.goto(f"{root}search.html?q={word}", wait_until="load")
                try:
                    page.wait_for_selector("ul.search li a", timeout=10_000)
                except NotFoundInTime:
                    found.append(f"the search does not find '{word}'")
            browser.close()
        server.shutdown()
    sys.stdout.writelines(f"{line}\n" for line in found)
    sys.stdout.write(f"manual: {len(paths)} pages at {len(WIDTHS)} widths, {len(found)} problems\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
