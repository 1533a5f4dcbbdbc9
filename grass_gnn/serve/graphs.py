"""The view for models of other graphs: drawings and predictions for the graphs of their data."""

from __future__ import annotations

import io
import math
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from pydantic import BaseModel, Field
from torch import Tensor

from grass_gnn.data.packed.dataset import PackedDataset
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.explain import Explanation, explain_packed
from grass_gnn.evaluation.pictures import graph_figure, layout
from grass_gnn.evaluation.trained import TrainedModel, find_data
from grass_gnn.progress import Progress, silent
from grass_gnn.report.svg import COLORS, picture
from grass_gnn.report.table import number
from grass_gnn.serve.limits import Limits, Refused
from grass_gnn.serve.values import SPLITS, attention_caption, show
from grass_gnn.tasks import METRICS, make_task


class GraphQuestion(BaseModel):
    """Which graph to draw, under all rewirings or one of them."""

    split: Literal["train", "val", "test"] = "test"
    number: int = Field(default=0, ge=0)
    rewiring: int | None = Field(default=None, ge=0)


class GraphView:
    """Draws graphs of the data that a run was trained on.

    Args:
        model: The trained model.
        rewirings: Number of rewirings to average over.
        limits: Largest graph.
        data: Folder with the raw files of a benchmark; by default, the one used in training.
        progress: Reports progress while data are prepared.
    """

    kind = "graphs"
    question = GraphQuestion

    def __init__(
        self,
        model: TrainedModel,
        rewirings: int,
        limits: Limits,
        data: Path | None = None,
        progress: Progress = silent,
    ) -> None:
        self.model, self.rewirings, self.limits = model, rewirings, limits
        self.task = make_task(model.config.task)
        self.names = self.task.output_names([], model.card.get("classes") or [])
        self.calibration_note, self.problem = "", ""
        self._splits: dict[str, PackedDataset] = {}
        try:
            self._splits = find_data(model, data, progress).splits
        except GrassError as problem:
            self.problem = f"There are no graphs to draw: {problem}"
        self._places = lru_cache(maxsize=32)(self._place)

    @property
    def sizes(self) -> list[dict[str, Any]]:
        """Name, title and number of graphs of each split."""
        return [
            {"name": name, "title": title, "graphs": len(self._splits[name])}
            for name, title in SPLITS.items()
            if name in self._splits
        ]

    def close(self) -> None:
        """Do nothing: graphs are drawn in this process."""

    def warm_up(self) -> None:
        """Draw a graph, if there is one, to speed up the first request."""
        with suppress(GrassError):
            self.look(GraphQuestion(rewiring=0))

    def look(self, asked: GraphQuestion) -> dict[str, Any]:
        """A drawing of a graph with its attention and predictions."""
        scored = self._graph(asked)
        graph = replace(scored, mask_name=None)  # predictions of all nodes are shown
        one, config = asked.rewiring, self.model.config
        explanation = explain_packed(
            self.model.model,
            config,
            graph,
            range(self.rewirings) if one is None else [one],
            by_graph=True,
        )
        samples = self.model.sample_packed(graph, self.rewirings, deterministic=True)
        shown = samples.mean(dim=0) if one is None else samples[one]  # [M, outputs]
        answer = {
            "picture": picture(self._draw(explanation, shown, asked)),
            "facts": self._facts(scored, SPLITS[asked.split], explanation, shown),
            "classes": self._classes(),
            "caption": attention_caption(explanation, "edge"),
        }
        if self.task.level == "graph":
            std = samples.std(dim=0, correction=0)[0] if one is None else None
            answer["values"] = show(self.task, self.names, shown[0], std)
            answer["headline"] = self.task.headline(self.names, shown[0])
        return answer

    def _graph(self, asked: GraphQuestion) -> PackedDataset:
        dataset = self._splits.get(asked.split)
        if dataset is None:
            raise GrassError(self.problem or f"The data have no {SPLITS[asked.split]} graphs.")
        if asked.number >= len(dataset):
            raise GrassError(f"Graphs are numbered from 0 to {len(dataset) - 1:,}.")
        nodes = int(dataset.graph_ptr[asked.number + 1] - dataset.graph_ptr[asked.number])
        if nodes > self.limits.nodes:
            raise Refused(
                413,
                f"This graph has {nodes:,} nodes; at most {self.limits.nodes:,} can be drawn.",
            )
        return dataset.part(asked.number, asked.number + 1)

    def _facts(
        self, graph: PackedDataset, split: str, explanation: Explanation, shown: Tensor
    ) -> list[dict[str, str]]:
        pairs = explanation.pairs()
        facts = {"nodes": f"{graph.num_nodes:,}", "connected pairs": f"{len(pairs):,}"}
        if (target := graph.tensors.get("y")) is not None:
            rows = f"{self.task.level}s"
            if graph.mask_name is not None:  # others were trained on, or have no target
                mask, rows = graph.tensors[graph.mask_name], f"{split} {rows}"
                target, shown = target[mask], shown[mask]
            facts |= self._truth(target, shown, rows)
        return [{"name": name, "value": value} for name, value in facts.items()]

    def _truth(self, target: Tensor, shown: Tensor, rows: str) -> dict[str, str]:
        """True values of a graph, or the score of its nodes or edges, if they have one."""
        task = self.task
        if task.level == "graph":
            known = list(task.true_values(self.names, target).items())[:10]
            return {
                f"true {name}": value if isinstance(value, str) else number(value)
                for name, value in known
            }
        if not len(target):
            return {}
        if task.classes is not None:
            right = int((task.decide(shown) == target).sum())
            return {f"{rows} predicted correctly": f"{right:,} of {len(shown):,}"}
        score = task.score(shown, target.float())
        if math.isnan(score):  # such as the AUC of a single class
            return {}
        return {f"{METRICS[task.metric].title} of {rows}": number(score)}

    def _classes(self) -> list[dict[str, str]]:
        """Names and colours of the classes of nodes."""
        if self.task.level != "node" or self.task.classes is None:
            return []
        return [
            {"name": name, "color": COLORS[place % len(COLORS)]}
            for place, name in enumerate(self.names)
        ]

    def _draw(self, explanation: Explanation, shown: Tensor, asked: GraphQuestion) -> str:
        place = self._places(asked.split, asked.number)
        options: dict[str, Any] = {}
        if classes := self._classes():
            colors = [one["color"] for one in classes]
            options["node_colors"] = [colors[best] for best in self.task.decide(shown).tolist()]
        added = 0 if asked.rewiring is None else None
        with matplotlib.rc_context({"svg.hashsalt": "grass-gnn"}):
            figure = graph_figure(explanation, place, added, **options)
            file = io.StringIO()
            figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        return file.getvalue()

    def _place(self, split: str, graph: int) -> np.ndarray:
        """Node positions [n, 2], the same for every rewiring."""
        dataset = self._splits[split].part(graph, graph + 1)
        pairs = {(min(i, j), max(i, j)) for i, j in dataset.tensors["edge_index"].tolist()}
        return layout(dataset.num_nodes, sorted(pairs))
