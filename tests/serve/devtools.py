"""A page in headless Chromium, driven by its DevTools protocol as a user would use it."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from contextlib import asynccontextmanager

import aiohttp
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--remote-debugging-port=0", "about:blank"),
)
PATIENCE = 120  # seconds for anything that is waited for


def find():
    chosen = os.environ.get("GRASS_TEST_CHROMIUM") or next(
        filter(None, map(shutil.which, NAMES)), None
    )
    if chosen is None:
        pytest.skip("no Chromium is installed to open the page in")
    return chosen


class Tab:
    """One page: what it logs is kept, what is asked of it is awaited."""

    def __init__(self, socket):
        self.socket, self.messages, self.count = socket, [], 0

    async def send(self, method, **parameters):
        self.count += 1
        await self.socket.send_json({"id": self.count, "method": method, "params": parameters})
        while True:
            answer = json.loads((await self.socket.receive(PATIENCE)).data)
            if answer.get("id") == self.count:
                return answer["result"]
            if answer["method"] in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.messages.append(json.dumps(answer["params"])[:500])

    async def open(self, url, width):
        for name in ("Page", "Runtime", "Log"):
            await self.send(f"{name}.enable")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.send("Emulation.setDeviceMetricsOverride", **size)
        await self.send("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def value(self, script):
        answer = await self.send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, script):
        for _ in range(PATIENCE * 10):
            if await self.value(script):
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"never true: {script}; {await self.value('document.body.innerText')}")

    async def write(self, selector, text):
        await self.value(f"document.querySelector({json.dumps(selector)}).focus()")
        await self.send("Input.insertText", text=text)

    async def press(self, key, modifiers=0):
        for kind in ("rawKeyDown", "keyUp"):
            await self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, modifiers=modifiers
            )


@asynccontextmanager
async def browser(folder):
    """A browser with one empty page."""
    command = [find(), *FLAGS, f"--user-data-dir={folder / 'profile'}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = ""
        while "DevTools listening" not in line:
            line = await asyncio.to_thread(process.stderr.readline)
            assert line, "Chromium has ended"
        port = re.search(r"127\.0\.0\.1:(\d+)", line)[1]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                (address,) = [
                    page["webSocketDebuggerUrl"]
                    for page in await answer.json()
                    if page["type"] == "page"
                ]
            async with session.ws_connect(address, max_msg_size=0) as socket:
                yield Tab(socket)
    finally:
        process.kill()
        process.wait()
