"""The site builds without warnings and offline, and its links work."""

import json
import logging
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from page_blocks import ROOT

from tools.website import code_spans
from tools.website.check import Page, repository_problems, site_problems
from tools.website.formulas import on_page_content
from tools.website.markdown_text import links, replace_links


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The built site, and the warnings."""
    folder, warnings = tmp_path_factory.mktemp("site"), []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("mkdocs").addHandler(handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder))
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    logging.getLogger("mkdocs").removeHandler(handler)
    return folder, warnings


def test_no_warning_and_no_broken_link(site: tuple[Path, list[str]]) -> None:
    folder, warnings = site
    assert not warnings
    assert not list(site_problems(folder))
    assert not list(repository_problems())


def test_what_is_outside_of_docs_is_on_the_site(site: tuple[Path, list[str]]) -> None:
    folder, _ = site
    assert "What is trusted" in (folder / "security.html").read_text("utf-8")
    assert '"../security.html"' not in (folder / "datasets.html").read_text("utf-8")
    assert "security.html" in Page((folder / "datasets.html").read_text("utf-8")).links
    assert (
        "repository/results/zinc-search/index.html"
        in Page((folder / "datasets.html").read_text("utf-8")).links
    )


def test_reference_has_names_and_formulas(site: tuple[Path, list[str]]) -> None:
    folder, _ = site
    page = (folder / "api" / "nn.html").read_text("utf-8")
    assert "grass_gnn.nn.attention.GRASSConv" in Page(page).anchors
    assert "<math" in page and ".. math" not in page and ":func:" not in page


def test_a_formula_that_cannot_be_shown_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="page.md"))
    good = '<p><span class="arithmatex">\\(x_i &lt; 1\\)</span></p>'
    assert "<msub>" in on_page_content(good, page) and not caplog.records
    on_page_content('<div class="arithmatex">\\[\\nonsense x\\]</div>', page)
    assert "nonsense" in caplog.text


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("[a](docs/b.md#c-d) [no](docs/x.md) [e](#f) `[g](h)`\n")
    (tmp_path / "docs" / "b.md").write_text("# C d\n")
    assert [one.split()[3] for one in repository_problems(tmp_path)] == ["docs/x.md,", "#f,"]
    (tmp_path / "a.html").write_text('<a href="b.html#there">b</a><a href="b.html#not">b</a>')
    (tmp_path / "b.html").write_text(
        '<p id="there"><script src="https://cdn.example/x.js"></script>'
    )
    assert sorted(one.split()[1] for one in site_problems(tmp_path)) == ["links", "loads"]


def test_links_in_code_stay() -> None:
    text = "[a](b) `[c](d)`\n```\n[e](f)\n```\n[g](https://h)"
    assert list(links(text)) == ["b"]
    assert replace_links(text, str.upper) == text.replace("(b)", "(B)")


def test_search_finds_settings_and_no_sources(site: tuple[Path, list[str]]) -> None:
    folder, _ = site
    index = json.loads((folder / "search" / "search_index.json").read_text("utf-8"))
    sizes: Counter[str] = Counter()
    for entry in index["docs"]:
        sizes[entry["location"].partition("#")[0]] += len(entry["text"])
    assert not [page for page in sizes if page.startswith("repository/")]
    assert sizes.most_common(1)[0][1] < 0.2 * sizes.total()
    boosts = {entry["location"]: entry.get("boost", 1) for entry in index["docs"]}
    assert boosts["configuration.html"] == max(boosts.values()) > boosts["modules.html"]
    titles = {entry["location"]: entry["title"] for entry in index["docs"]}
    assert titles["configuration.html#training.batch_size"] == "training.batch_size"
    assert "training.batch_size" in Page((folder / "configuration.html").read_text("utf-8")).anchors


def test_reports_open_as_pages(site: tuple[Path, list[str]]) -> None:
    folder, _ = site
    page = (folder / "repository" / "results" / "paper" / "report.html").read_text("utf-8")
    assert page == (ROOT / "results" / "paper" / "report.html").read_text("utf-8")


def test_code_is_shown_as_it_is_typed(site: tuple[Path, list[str]]) -> None:
    row = "| `--split KIND\\|NAME` | a pipe | `a` |"
    assert code_spans.on_page_markdown(row) == "| `--split KIND|NAME` | a pipe | `a` |"
    assert code_spans.on_page_markdown("`a\\|b`") == "`a\\|b`"  # not in a table
    assert ">--bad-rows</span> skip</code>" in code_spans.on_page_content(
        "<code>--bad-rows skip</code>"
    )
    block = "<code><span>grass-gnn</span> --json</code>"
    assert code_spans.on_page_content(block) == block
    assert "\\|" not in (site[0] / "commands.html").read_text("utf-8")
