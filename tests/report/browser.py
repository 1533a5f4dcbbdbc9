"""Pages in headless Chromium: console messages, width and screenshots."""

import html
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--enable-logging=stderr"),
)
FRAME = """<!doctype html><title>waiting</title><body style="margin:0">
<iframe style="border:0" width="{width}" height="{height}" srcdoc="{page}"></iframe>
<script>
const frame = document.querySelector("iframe");
frame.onload = () => {{
  const page = frame.contentDocument;
  document.title = [page.documentElement.scrollWidth, page.querySelectorAll("table").length,
    page.querySelectorAll("figure svg[role=img]").length].join(" ");
}};
</script>"""


def find():
    chosen = os.environ.get("GRASS_TEST_CHROMIUM") or next(
        filter(None, map(shutil.which, NAMES)), None
    )
    if chosen is None:
        pytest.skip("no Chromium is installed to open the page in")
    return chosen


def run(folder, page, *options):
    """Open a page and return what Chromium printed, and what it logged."""
    command = [find(), *FLAGS, f"--user-data-dir={folder / 'profile'}", *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    shutil.rmtree(folder / "profile", ignore_errors=True)
    return done.stdout, done.stderr


def framed(folder: Path, page: Path, width: int, height: int = 900) -> Path:
    """A page with the other one in a frame of some width: a window cannot be that narrow."""
    text = html.escape(page.read_text("utf-8"), quote=True)
    path = folder / "frame.html"
    path.write_text(FRAME.format(width=width, height=height, page=text), "utf-8")
    return path


def measure(folder, page, width):
    """Width of the content, number of tables, number of figures, and messages of the console."""
    printed, logged = run(
        folder, framed(folder, page, width), "--virtual-time-budget=5000", "--dump-dom"
    )
    found = re.search(r"<title>(\d+) (\d+) (\d+)</title>", printed)
    assert found, printed[:500] + logged[-500:]
    messages = [line for line in logged.splitlines() if "CONSOLE" in line]
    return *map(int, found.groups()), messages
