"""The page: published and measured numbers, complete, escaped, and opened in a browser."""

import json
import re
from xml.etree import ElementTree

import browser
import pytest

from grass_gnn.cli import main
from grass_gnn.config import GRASSConfig
from grass_gnn.experiments.catalogue import experiments
from grass_gnn.experiments.evidence import CONTRADICTED, NOT_RESOLVED
from grass_gnn.experiments.measured import GridRecord, RunRecord
from grass_gnn.experiments.theory import Point, SimpleDraw, Theory
from grass_gnn.report.comparison import claims_table, comparison_tables
from grass_gnn.report.figures import (
    added_edges,
    poorly_connected,
    predicted_against_true,
    rewired,
    spectral_gap,
)
from grass_gnn.report.page import write_report
from grass_gnn.report.theory import checks, write_theory_page
from grass_gnn.training.run import config_toml


def texts(table):
    return [[entry.text for entry in row] for row in table.rows]


def test_published_and_measured_numbers_are_shown(write_grid):
    grid = GridRecord.open(write_grid("zinc-ablation", without=("adamw",)))
    (table, *_) = comparison_tables(grid)
    rows = texts(table)
    assert rows[0][:3] == ["GRASS", "0.0470 ± 0.0013", "0.5005 ± 0.0007 (n = 2)"]
    assert rows[1][0].startswith("Rewire at every epoch →")
    assert rows[1][3:] == ["+37.2 %", "+2.0 %"]
    assert rows[-1][2] == "–"  # it did not run
    assert [row[2].mark for row in table.rows][:2] == ["best", "second"]
    assert "reduced budget" in table.note


def test_two_grids_of_one_experiment_are_shown_side_by_side(write_grid, tmp_path):
    folders = [write_grid("zinc-edges", folder=name) for name in ("short", "long")]
    page = write_report(folders, tmp_path / "report.html", tmp_path).read_text("utf-8")
    assert "(long)" in page and "(short)" not in page  # the first keeps its title
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert len(list((tmp_path / "tables").glob("zinc-edges*-scores.md"))) == 2


@pytest.mark.parametrize("name", experiments())
def test_every_experiment_has_a_page(name, write_grid, tmp_path):
    page = write_report([write_grid(name)], tmp_path / "report.html", tmp_path).read_text("utf-8")
    assert experiments()[name].title in page and "Measured with a reduced budget" in page
    assert list((tmp_path / "tables").glob("*.tex"))
    drawn = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    files = [path.read_text("utf-8") for path in (tmp_path / "figures").glob("*.svg")]
    assert drawn and len(files) == len(drawn)
    for svg in drawn + files:
        ElementTree.fromstring(svg)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)  # nothing to fetch


def test_costs_and_standings(write_grid):
    tables = {t.name: t for t in comparison_tables(GridRecord.open(write_grid("zinc-edges")))}
    costs = texts(tables["zinc-edges-costs"])
    assert costs[1][0] == "3 added edges per node, regular"
    assert costs[1][-4:] == ["1.81 ± 0.10", "4.00 ± 0.50", "1911", "1,000"]
    grid = GridRecord.open(write_grid("gnn-benchmark", folder="other"))
    tables = {t.name: t for t in comparison_tables(grid)}
    standing = texts(tables["gnn-benchmark-zinc-standings"])
    assert standing[0][1:] == ["GRASS", "0.047 ± 0.001"]
    assert ["21", "GRASS, measured here", "0.5005 ± 0.0007 (n = 2)"] in standing
    assert texts(tables["gnn-benchmark-scores"])[1][2] == "51.05 ± 0.07 (n = 2)"  # in per cent


def test_claims_are_computed_from_what_was_measured(write_grid):
    grid = GridRecord.open(write_grid("zinc-ablation", seeds=(0,)))
    claims = {row[0].text: row for row in claims_table([grid]).rows}
    once = claims["Increase of MAE on ZINC when rewired once"]
    assert [entry.text for entry in once[1:4]] == ["37.2 %", "37.2 %", "2.0 %"]
    assert once[5].text == NOT_RESOLVED  # one seed
    assert not any("Rank" in text for text in claims)  # nothing of those tables was measured
    size = claims_table([GridRecord.open(write_grid("pascalvoc-ablation", folder="other"))])
    ratio = next(row for row in size.rows if "multiple of D-RRWP" in row[0].text)
    assert ratio[3].text == "20.00×" and ratio[5].text == CONTRADICTED


def test_added_edges_have_error_bars_and_words(write_grid):
    figure = added_edges(GridRecord.open(write_grid("zinc-edges")))
    assert "standard error" in figure.text and figure.text in figure.svg
    assert len(figure.numbers.rows) == 4 * 5


def test_failures_and_foreign_text_are_shown_escaped(write_grid, tmp_path):
    root = write_grid("zinc-ablation", without=("gat",))
    failed = root / "gat" / "seed-0"
    failed.mkdir(parents=True)
    (failed / "error.json").write_text(json.dumps({"error": "<script>alert(1)</script>"}))
    page = write_report([root], tmp_path / "report.html").read_text("utf-8")
    assert "gat/seed-0 failed: &lt;script&gt;" in page and "<script" not in page
    assert "&lt;b&gt;a processor" in page


def test_a_single_run_has_a_page(write_grid, tmp_path, capsys):
    run = write_grid("zinc") / "zinc" / "seed-0"
    page = tmp_path / "one.html"
    assert main(["report", str(run), "-o", str(page)]) == 0
    text = page.read_text("utf-8")
    assert "Scores of seed-0" in text and "Predicted against true" in text
    assert "few graphs" in text and "0123456789abcdef" in text
    capsys.readouterr()
    assert main(["report", str(tmp_path / "nowhere")]) == 1
    assert "neither a finished run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("preset", "rows", "pairs"),
    [
        ("zinc", ["graph,target_0,mean_0,std_0", "0,1.5,1.25,0.1", "1,-2,-2.5,0.2"], 2),
        ("mnist", ["graph,target_0,mean_0,mean_1", "0,1,0.3,0.7", "1,0,0.4,0.6"], 2),
        ("peptides-func", ["graph,target_0,mean_0,std_0", "0,1,0.3,0.7"], 0),
    ],
)
def test_a_run_by_itself_shows_its_averaged_predictions(preset, rows, pairs, tmp_path):
    (tmp_path / "config.toml").write_text(config_toml(GRASSConfig.preset(preset), 0))
    (tmp_path / "test_predictions.csv").write_text("\n".join(rows) + "\n")
    run = RunRecord(tmp_path)
    figure = predicted_against_true("run", run)
    assert (figure is not None) == bool(pairs)
    if figure is not None:
        assert "Averaged over rewirings" in figure.note
        expected = {"zinc": [(1.5, 1.25), (-2, -2.5)], "mnist": [(1, 1), (0, 1)]}
        assert run.predictions == expected[preset]


def test_rewiring_shortens_the_drawn_graph():
    graph = poorly_connected()
    before = spectral_gap(graph)
    for seed in range(5):
        whole = graph.copy()
        whole.add_edges_from(rewired(graph, seed))
        assert spectral_gap(whole) >= before


def made_up_theory():
    points = [Point(n, r, 3.0, 4.0, 5.0, 10) for n in (32, 100) for r in (4, 6, 8)]
    gaps = [Point(n, r, 1.0, 0.8, 0.5, 10) for n in (32, 100) for r in (4, 6, 8)]
    shares = [Point(n, 4, 1.0, 1.0, 1.0, 20) for n in (20, 40, 80)]
    draws = [SimpleDraw(1, 400, 20_000, 4463), SimpleDraw(2, 400, 20_000, 135)]
    return Theory(points, points, gaps, shares, shares, draws)


def test_theory_page_says_where_formula_and_simulation_disagree(tmp_path):
    verdicts = [check.agrees for check in checks(made_up_theory())]
    assert verdicts == [True] * 5 + [False, True, True] + [False, False, True]
    page = write_theory_page(made_up_theory(), tmp_path / "theory.html").read_text("utf-8")
    assert "8 of 11 claims agree" in page and "equation (6)" in page


@pytest.mark.parametrize("width", [375, 1100])
def test_pages_open_in_a_browser(write_grid, tmp_path, width):
    browser.find()
    page = write_report(
        [
            write_grid("zinc-ablation"),
            write_grid("zinc-edges", folder="edges"),
            write_grid("zinc-baselines", folder="baselines"),
            write_grid("cluster-baselines", folder="cluster"),
        ],
        tmp_path / "report.html",
    )
    theory = write_theory_page(made_up_theory(), tmp_path / "theory.html")
    for path, least_tables, least_figures in ((page, 12, 9), (theory, 4, 6)):
        content, tables, figures, messages = browser.measure(tmp_path, path, width)
        assert content == width  # nothing makes the page scroll sideways
        assert tables >= least_tables and figures >= least_figures
        assert messages == []
