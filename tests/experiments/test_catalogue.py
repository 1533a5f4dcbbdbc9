"""Experiments: every row of the paper's ablations exists, trains and evaluates."""

import math

import pytest
import torch
from tiny_grids import TINY

from grass_gnn import GrassError
from grass_gnn.config import preset_names, setting_names
from grass_gnn.experiments.budget import BUDGETS, make_budget
from grass_gnn.experiments.catalogue import experiment, experiments
from grass_gnn.experiments.job import Job, Source, run_job
from grass_gnn.experiments.published import published_table
from grass_gnn.files import read_json
from grass_gnn.nn.model import count_parameters

CELLS = [(name, cell) for name, e in experiments().items() for cell in e.cells]
# The experiments of single presets repeat cells of the two benchmarks.
ROWS = [pair for pair in CELLS if pair[0] not in preset_names()]


@pytest.mark.parametrize(("name", "cell"), ROWS, ids=lambda value: value)
def test_every_row_trains_two_steps_and_evaluates(name, cell, tmp_path, random_source):
    chosen = experiment(name).cell(cell)
    small = {"training.batch_size": 4, "model.dim": 8, "encoding.steps": 4, "model.head_hidden": 4}
    if chosen.config().encoding.kind == "decomposed-rrwp":
        small["encoding.eigenpairs"] = 4
    settings = chosen.settings | (small if chosen.architecture is None else {})
    job = Job(name, type(chosen)(**(vars(chosen) | {"settings": settings})), 0, TINY, Source())
    run_job(job, tmp_path / "run")
    assert not (tmp_path / "run" / "error.json").exists(), read_json(tmp_path / "run/error.json")
    results = read_json(tmp_path / "run" / "results.json")
    assert math.isfinite(results["test"]["mean"])
    rows = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    # Eight graphs in batches of four; baselines keep the preset's batch, and one graph is a step.
    expected = 2 if chosen.architecture is None and chosen.preset != "roman-empire" else 1
    assert rows[1].split(",")[1] == str(expected)


@pytest.mark.parametrize("name", experiments())
def test_every_cell_builds_and_has_its_number_in_the_paper(name):
    chosen = experiment(name)
    assert chosen.title and chosen.fillings
    for cell in chosen.cells.values():
        cell.config()
        assert set(cell.settings) <= set(setting_names())
        for filling in chosen.fillings:
            if filling.concerns(cell):
                assert filling.published(cell).text


@pytest.mark.parametrize(
    ("name", "table"),
    [("zinc-ablation", "ablation-zinc"), ("pascalvoc-ablation", "ablation-pascalvoc")],
)
def test_every_row_of_a_component_table_is_a_cell(name, table):
    assert [cell.row for cell in experiment(name).cells.values()] == published_table(table).rows


@pytest.mark.parametrize(
    ("name", "table"),
    [("zinc-edges", "added-edges-zinc"), ("pascalvoc-edges", "added-edges-pascalvoc")],
)
def test_every_number_of_an_added_edges_table_is_measured(name, table):
    chosen, published = experiment(name), published_table(table)
    filled = {
        id(published.cell(*filling.place(cell)))
        for filling in chosen.fillings
        for cell in chosen.cells.values()
    }
    assert filled == {id(cell) for cell in published.cells.values()}


def test_each_ablation_changes_what_it_says():
    base = experiment("zinc-ablation").cell("grass").config()
    configs = [cell.config() for cell in experiment("zinc-ablation").cells.values()]
    assert base == configs[0] and len({c.model_dump_json() for c in configs}) == len(configs)
    adamw = experiment("zinc-ablation").cell("adamw").config().training
    assert adamw.optimizer == "adamw" and adamw.epochs == 2000
    complete = experiment("zinc-edges").cell("complete").config()
    assert complete.rewiring.kind == "complete"


@pytest.mark.parametrize(
    ("name", "budget"),
    [("zinc-baselines", 496545), ("zinc-minutes", 496545), ("mnist-baselines", 103690)],
)
def test_baselines_have_the_papers_number_of_parameters(name, budget):
    """Within a few per cent: widths are multiples of four."""
    for cell in experiment(name).cells.values():
        config = Job(name, cell, 0, BUDGETS["paper"], Source()).config()
        if cell.architecture or name != "zinc-minutes":  # whose GRASS is a shallow one
            assert abs(count_parameters(config) / budget - 1) < 0.06, cell.name
        if cell.architecture:
            assert config.model.layers == cell.settings["model.layers"]
            assert config.evaluation.rewirings == 1  # they see no random edges
            assert config.evaluation.statistics_passes == 0


@pytest.mark.parametrize("setting", ["model.layers", "model.dim"])
def test_baselines_follow_the_size_that_a_setting_gives_grass(setting):
    budget = make_budget("paper", {setting: 8})
    sizes = [
        count_parameters(Job("zinc-baselines", cell, 0, budget, Source()).config())
        for cell in experiment("zinc-baselines").only(["grass", "gin"]).cells.values()
    ]
    assert abs(sizes[1] / sizes[0] - 1) < 0.15  # widths are multiples of four


def test_presets_are_experiments_of_one_cell():
    assert {"zinc", "coco-sp", "roman-empire"} <= set(experiments())
    assert list(experiment("mnist").cells) == ["mnist"]
    with pytest.raises(GrassError, match="did you mean 'zinc-ablation'"):
        experiment("zinc-ablations")
    with pytest.raises(GrassError, match="did you mean 'gatedgcn'"):
        experiment("zinc-ablation").only(["gatedgnc"])


def test_a_budget_of_few_graphs_says_so(random_source):
    config = TINY.apply(experiment("zinc").cell("zinc").config())
    data = Source().prepare(config)
    limited = TINY.limit(data)
    assert [len(split) for split in limited.splits.values()] == [8, 4, 4]
    assert limited.fingerprint.hash != data.fingerprint.hash and not limited.official
    assert "at most 8 graphs" in limited.fingerprint.differences[-1]
    graphs = limited.train.select(torch.tensor([7, 0]))
    assert torch.equal(graphs.y, data.train.select(torch.tensor([7, 0])).y)
    assert limited.statistics.mean_nodes == pytest.approx(limited.train.num_nodes / 8)
