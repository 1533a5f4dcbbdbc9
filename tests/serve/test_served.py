"""The page on an address: from the command line, and in a browser."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager

import devtools
import pytest
import uvicorn
from serving import page_of

import grass_gnn.serve.server
from grass_gnn.cli import main
from grass_gnn.serve.limits import Limits
from grass_gnn.serve.server import Address, Connection


def test_the_command_serves_until_ctrl_c(run):
    command = [sys.executable, "-m", "grass_gnn", "serve", str(run), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--rewirings", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"GRASS_OPS": "reference", "PYTHONUNBUFFERED": "1"},
    )
    try:
        url = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())[0]
        with urllib.request.urlopen(url) as answer:
            assert b"<h1>run</h1>" in answer.read()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (process.returncode, said) == (0, "The page is closed.\n")


def test_a_port_in_use_gives_a_clear_error(run, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(run), "--port", str(port)]) == 1
    assert f"Port {port} is in use: choose another with --port" in capsys.readouterr().err


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_serving_other_machines_prints_a_warning(run, capsys, monkeypatch, host, warned):
    served = []
    monkeypatch.setattr(
        grass_gnn.serve.server, "serve", lambda app, address: served.append(address)
    )
    assert main(["serve", str(run), "--host", host, "--port", "0", "--rewirings", "1"]) == 0
    said = capsys.readouterr()
    assert ("Warning: anyone who can reach 0.0.0.0" in said.err) == warned
    assert served[0].url in said.out and served[0].url.startswith("http://127.0.0.1:")
    served[0].listener.close()


def test_an_invalid_address_gives_a_clear_error(run, capsys):
    assert main(["serve", str(run), "--host", "192.0.2.1", "--port", "0"]) == 1
    assert "Cannot listen on 192.0.2.1: " in capsys.readouterr().err


@contextmanager
def served(folder):
    """The address of a page that a thread serves."""
    devtools.find()
    page = page_of([folder], Limits(), 2)
    server = uvicorn.Server(uvicorn.Config(page, http=Connection, log_level="warning"))
    bound = Address.bind("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound.listener]})
    thread.start()
    try:
        yield bound.url
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize("width", [1280, 375])
def test_molecules_in_a_browser(run, tmp_path, width):
    async def use(address):
        async with devtools.browser(tmp_path) as tab:
            await tab.open(address, width)
            await tab.write("#smiles", "CC(=O)Oc1ccccc1C(=O)O <img src=x onerror=alert(1)>\nC(")
            await tab.press("Enter", modifiers=2)  # Ctrl
            await tab.until("document.querySelectorAll('.choices button').length === 3")
            card = "document.querySelector('.card')"
            assert "±" in await tab.value(f"{card}.querySelector('.value').textContent")
            assert "onerror" in await tab.value(f"{card}.querySelector('h3').textContent")
            assert await tab.value("document.querySelectorAll('main img').length") == 1
            failed = await tab.value("document.querySelector('.failed').innerText")
            assert "the SMILES is not valid" in failed
            await tab.value(f"{card}.querySelector('details').open = true")
            await tab.value(f"{card}.querySelectorAll('.choices button')[2].click()")
            await tab.until(f"{card}.querySelector('img').alt.includes('rewiring 2')")
            await tab.until(f"{card}.querySelector('img').naturalWidth > 0")
            assert "1 predicted, 1 failed" in await tab.value(
                "document.querySelector('#status').textContent"
            )
            assert await tab.value("document.documentElement.scrollWidth") == width
            assert not tab.messages

    with served(run) as address:
        asyncio.run(use(address))


def test_many_molecules_are_a_sortable_table(run, tmp_path):
    async def use(address):
        async with devtools.browser(tmp_path) as tab:
            await tab.open(address, 375)
            lines = [f"{'C' * size}O number-{size}" for size in range(1, 14)]
            await tab.write("#smiles", "\n".join([*lines, "C( bad"]))
            await tab.press("Enter", modifiers=2)  # Ctrl
            names = "[...document.querySelectorAll('td > button')].map((b) => b.textContent)"
            await tab.until(f"{names}.length === 14")
            assert await tab.value("document.querySelectorAll('#cards .card').length") == 0
            head = "document.querySelectorAll('#rows th')[2]"
            assert await tab.value(f"{head}.innerText.trim()") == "logS"
            values = "[...document.querySelectorAll('#rows tr:not(.details) td:nth-child(3)')]"
            for direction in ("ascending", "descending"):
                await tab.value(f"{head}.querySelector('button').click()")
                assert await tab.value(f"{head}.ariaSort") == direction
                texts = await tab.value(f"{values}.map((cell) => cell.textContent)")
                assert texts[-1] == ""  # the failed row comes last either way
                numbers = [float(t.split()[0].replace("−", "-")) for t in texts if t]
                assert numbers == sorted(numbers, reverse=direction == "descending")
            await tab.value("document.querySelectorAll('td > button')[3].click()")
            await tab.until("document.querySelector('tr .card img')?.naturalWidth > 0")
            assert await tab.value("document.documentElement.scrollWidth") == 375
            await tab.value("document.querySelector('#smiles').value = ''")
            await tab.value("document.querySelector('#ask').requestSubmit()")
            await tab.until("document.querySelector('#status.error') !== null")
            assert await tab.value("document.querySelector('#results').hidden")
            messages = [one for one in tab.messages if "400 (Bad Request)" not in one]
            assert not messages

    with served(run) as address:
        asyncio.run(use(address))


def test_other_graphs_in_a_browser(graph_run, tmp_path):
    async def use(address):
        async with devtools.browser(tmp_path) as tab:
            await tab.open(address, 375)
            title = "document.querySelector('.card h3').textContent"
            await tab.until(f"{title} === 'Graph 0, all rewirings'")
            for field, value in (("number", 99), ("rewiring", 1)):
                await tab.value(
                    f"{{ const field = document.querySelector('#{field}'); field.value = {value};"
                    " field.dispatchEvent(new Event('change')); }"
                )
            await tab.until(f"{title} === 'Graph 2, rewiring 2'")  # the last one that there is
            await tab.until("document.querySelector('.card img').naturalWidth > 0")
            assert "true output" in await tab.value("document.querySelector('.card dl').innerText")
            assert await tab.value("document.documentElement.scrollWidth") == 375
            assert not tab.messages

    with served(graph_run(input__nodes__sizes=[3])) as address:
        asyncio.run(use(address))
