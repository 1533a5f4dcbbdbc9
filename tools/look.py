"""Opens README, report, served page and docs in a browser, and says what is wrong with them.

Each page is opened at two widths in both themes. Checked are messages of the console, sideways
scrolling and axe-core's rules of accessibility; a picture of each is saved to be looked at.

    npm install --prefix build axe-core@4.14.0
    python -m tools.look runs/demo --axe build/node_modules/axe-core/axe.min.js

The docs are opened if ``make docs`` has built them.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import functools
import http.server
import json
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import markdown

from grass_gnn.report.page import write_report
from tests.serve.devtools import Tab, browser

ROOT = Path(__file__).resolve().parent.parent
WIDTHS = (1280, 390)
SITE = ROOT / "site"
THEMES = ("light", "dark")
PAGES = ("readme", "report", "served", "docs")
DOCS = (
    *("index", "own-data", "error-bars", "method", "performance", "commands", "configuration"),
    *("tutorials/molecules", "notebooks/molecules", "notebooks/attention"),
    *("notebooks/rewiring-and-encodings", "api/nn"),
)
MOLECULES = (
    "CC(=O)Oc1ccccc1C(=O)O aspirin\nCn1c(=O)c2c(ncn2C)n(C)c1=O caffeine\nCN1CCCC1c1cccnc1 nicotine"
)
TALLEST = 6000  # pixels of a page in a picture

# The colours and sizes that GitHub shows a README in.
GITHUB = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #fff; --line: #d1d9e0; --soft: #f6f8fa;
  --link: #0969da }
@media (prefers-color-scheme: dark) { :root { --ink: #f0f6fc; --paper: #0d1117; --line: #3d444d;
  --soft: #151b23; --link: #4493f8 } }
body { font: 16px/1.5 -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif;
  color: var(--ink); background: var(--paper); margin: 0 auto; padding: 16px; max-width: 896px;
  overflow-wrap: break-word }
a { color: var(--link) } img { max-width: 100%; background: #fff }
h1, h2 { border-bottom: 1px solid var(--line); padding-bottom: .3em }
pre { background: var(--soft); padding: 16px; overflow: auto; font-size: 13.6px }
code { background: var(--soft); padding: .2em .4em; font-size: 85%; border-radius: 6px }
pre code { padding: 0; font-size: 100% }
table { display: block; width: max-content; max-width: 100%; overflow: auto; border-spacing: 0;
  border-collapse: collapse }
td, th { border: 1px solid var(--line); padding: 6px 13px }
"""


def readme(folder: Path) -> Path:
    """README.md as a page that looks as on GitHub."""
    body = markdown.markdown(
        (ROOT / "README.md").read_text("utf-8"), extensions=["tables", "fenced_code", "sane_lists"]
    )
    body = re.sub(r'src="(?!https?:)', f'src="{ROOT.as_uri()}/', body)
    body = body.replace("<pre>", '<pre tabindex="0">')
    page = folder / "readme.html"
    page.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>README</title>'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f"<style>{GITHUB}</style><main>{body}</main></html>",
        "utf-8",
    )
    return page


@contextlib.contextmanager
def served(run: Path) -> Iterator[str]:
    """The page of a run, served by another process."""
    command = [sys.executable, "-m", "grass_gnn", "serve", str(run), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.search(r"http://[\w.:]+\d", line):
                yield found[0]
                return
        raise SystemExit("the page could not be served")
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def docs() -> Iterator[str]:
    """The built site, served: pages that are opened as files have no search."""
    handler = functools.partial(_Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


async def ask(tab: Tab) -> None:
    """Predict three molecules on the served page."""
    if not await tab.value("!!document.querySelector('#smiles')"):
        return
    await tab.value(
        f"document.querySelector('#smiles').value = {json.dumps(MOLECULES)};"
        "document.querySelector('#ask').requestSubmit()"
    )
    await tab.until("document.querySelectorAll('#cards .card').length === 3")
    for place in range(3):  # cards are drawn when they come into view
        card = f"document.querySelectorAll('#cards .card')[{place}]"
        await tab.value(f"{card}.scrollIntoView()")
        await tab.until(f"!{card}.querySelector('.loading')")
        await tab.until(f"{card}.innerText.includes('Contributions of atoms')")
    await tab.value("scrollTo(0, 0)")


async def problems(tab: Tab, width: int, axe: str) -> list[str]:
    """What the console, the width and axe say."""
    found = [f"console: {message}" for message in tab.messages]
    content = await tab.value("document.documentElement.scrollWidth")
    if content > width:
        found.append(f"scrolls sideways: {content} px")
    if axe:
        await tab.value(f"{axe}; 0")
        script = "axe.run().then(found => { window.axeFound = found.violations })"
        await tab.value(f"window.axeFound = null; {script}; 0")
        await tab.until("window.axeFound !== null")
        told = await tab.value(
            "window.axeFound.map(v => v.id + ': ' + v.nodes.map(n => n.target + ' ' +"
            " (n.any[0] || {message: ''}).message).slice(0, 3).join(' | '))"
        )
        found += [f"axe {one}" for one in told]
    return found


async def picture(tab: Tab, path: Path, width: int) -> None:
    height = min(TALLEST, await tab.value("document.documentElement.scrollHeight"))
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    shot = await tab.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
    path.write_bytes(base64.b64decode(shot["data"]))


async def visit(
    name: str, address: str, width: int, theme: str, folder: Path, axe: str
) -> list[str]:
    """Open a page in one way and save its picture; returns its problems.

    Each visit has a browser of its own: the docs remember the theme they were first opened in.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        async with browser(Path(profile)) as tab:
            scheme = {"name": "prefers-color-scheme", "value": theme}
            await tab.send("Emulation.setEmulatedMedia", features=[scheme])
            await tab.open(address, width)
            if name == "served":
                await ask(tab)
            found = await problems(tab, width, axe)
            await picture(tab, folder / f"{name}-{width}-{theme}.png", width)
    return found


async def look(pages: dict[str, str], folder: Path, axe: str) -> int:
    """Open every page in every way; returns the number of problems."""
    count = 0
    for (name, address), width, theme in product(pages.items(), WIDTHS, THEMES):
        found = await visit(name, address, width, theme, folder, axe)
        count += len(found)
        print(f"{name} {width} {theme}: {'; '.join(found) or 'fine'}", flush=True)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="run folder, such as that of make run")
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "look", help="pictures")
    parser.add_argument("--only", nargs="*", default=PAGES, choices=PAGES, help="pages to open")
    parser.add_argument("--docs", nargs="*", default=DOCS, help="pages of the docs to open")
    arguments = parser.parse_args()
    folder, chosen = arguments.out, arguments.only
    folder.mkdir(parents=True, exist_ok=True)
    axe = arguments.axe.read_text("utf-8") if arguments.axe else ""
    pages = {}
    with contextlib.ExitStack() as stack:
        if "readme" in chosen:
            pages["readme"] = readme(folder).resolve().as_uri()
        if "report" in chosen:
            page = write_report([arguments.run], folder / "report.html")
            pages["report"] = page.resolve().as_uri()
        if "served" in chosen:
            pages["served"] = stack.enter_context(served(arguments.run))
        if "docs" in chosen and (SITE / "index.html").is_file():
            address = stack.enter_context(docs())
            for name in arguments.docs:
                pages[f"docs-{name.replace('/', '-')}"] = f"{address}/{name}.html"
        raise SystemExit(min(1, asyncio.run(look(pages, folder, axe))))


if __name__ == "__main__":
    main()
