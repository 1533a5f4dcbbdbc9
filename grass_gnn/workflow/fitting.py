"""``grass_gnn.fit``: from graphs, however they are given, to a trained model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from torch_geometric.data import Data

from grass_gnn.config import GRASSConfig, InputConfig
from grass_gnn.data.splits import DEFAULT_SHARES
from grass_gnn.data.tables import is_table
from grass_gnn.errors import GrassError
from grass_gnn.evaluation import TrainedModel, load_model
from grass_gnn.progress import Progress
from grass_gnn.training import check_folder
from grass_gnn.workflow.convert import read_graphs
from grass_gnn.workflow.fit_table import fit_table
from grass_gnn.workflow.inference import divide, infer_graph_task, infer_input
from grass_gnn.workflow.own_runs import train_graphs
from grass_gnn.workflow.plan import plan

Graphs: TypeAlias = Sequence[Data] | Mapping[str, Sequence[Data]] | Data


def fit(
    data: Graphs | str | Path,
    out: str | Path | None = None,
    *,
    target: str | Sequence[str] = (),
    level: str | None = None,
    task: str | None = None,
    shares: Sequence[float] = DEFAULT_SHARES,
    config: GRASSConfig | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **table_options: Any,
) -> TrainedModel:
    """Train GRASS on data of one's own; features, task and dimensions are inferred.

    Args:
        data: A list or ``Dataset`` of PyG graphs with targets ``y``, a mapping of
            ``"train"``, ``"val"`` and ``"test"`` to such lists, one graph whose nodes or edges
            have targets, a file of saved graphs (``.pt``), or a table of molecules.
        out: The run folder; if not given, only the model that is returned remains.
        target: Of a table, the column or columns to learn.
        level: What has a target: ``"graph"``, ``"node"`` or ``"edge"``; inferred if not given.
        task: ``"regression"``, ``"binary"``, ``"classification"`` or ``"multilabel"``; inferred
            if not given (integers are classes, numbers are quantities, zeros and ones labels).
        shares: Shares of training, validation and test, where they are drawn.
        config: Settings to start from; by the size of the data if not given.
        settings: Changes to them, by dotted name.
        seed: Of everything random.
        progress: Told what is done; a bar on a terminal if not given.
        table_options: Of a table, what else :func:`fit_table` takes.

    Example:
        >>> model = fit(graphs, "runs/mine", settings={"training.epochs": 50})  # doctest: +SKIP
        >>> mean, std = model.predict(new_graphs, rewirings=16)  # doctest: +SKIP
    """
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            found = fit(
                data,
                Path(folder) / "run",
                target=target,
                level=level,
                task=task,
                shares=shares,
                config=config,
                settings=settings,
                seed=seed,
                progress=progress,
                **table_options,
            )
            return replace(found, folder=None)
    out = Path(out)
    if isinstance(data, (str, Path)):
        if is_table(data):
            targets = [target] if isinstance(target, str) else list(target)
            fit_table(
                data,
                targets,
                out,
                shares=shares,
                task=task,
                config=config,
                settings=settings,
                seed=seed,
                progress=progress,
                **table_options,
            )
            return load_model(out)
        data = read_graphs(data)
    if table_options or target:
        given = ", ".join([*table_options, *(["target"] if target else [])])
        raise GrassError(f"Of a list of graphs, there is no use for {given}.")
    fit_graphs(data, out, level, task, shares, config, settings, seed, progress)
    return load_model(out)


def fit_graphs(
    data: Graphs,
    out: Path,
    level: str | None = None,
    task: str | None = None,
    shares: Sequence[float] = DEFAULT_SHARES,
    config: GRASSConfig | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    features: InputConfig | None = None,
) -> None:
    """Train on PyG graphs and leave a run folder; see :func:`fit` for the arguments.

    ``features`` are what the graphs come with, if that is not to be inferred.
    """
    check_folder(out, resume=False)
    splits = divide(data, level, shares, seed)
    graphs = list({id(one): one for part in splits.values() for one in part}.values())
    found_task = infer_graph_task(graphs, level, task)
    chosen = plan(splits["train"], features or infer_input(graphs), found_task, config, settings)
    card = {"classes": graphs[0].get("classes") or []}
    train_graphs(splits, chosen, out, seed, card=card, progress=progress)
