"""Run folders of models that were never trained: pages show what they say all the same."""

import numpy as np
import pytest
import torch
from serving import MOLECULES, TINY, page_of
from starlette.testclient import TestClient

from fuzz.models import write_calibration
from grass_gnn import GRASS, GRASSConfig
from grass_gnn.data.packed.prepare import prepare
from grass_gnn.data.tables.molecules import MoleculeReader
from grass_gnn.data.tables.spec import SPLITS
from grass_gnn.evaluation.trained import save_model
from grass_gnn.files import write_json
from grass_gnn.serve.limits import Limits
from grass_gnn.testing import random_input
from grass_gnn.uncertainty.similarity import SimilarityReference

pytest.importorskip("rdkit")


@pytest.fixture(autouse=True, scope="module")
def reference_layers(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRASS_OPS", "reference")
        patch.setenv("GRASS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def write_run(tmp_path_factory):
    """Write a run on molecules: its targets, their task, and what else its card says."""

    def write(name="run", targets=("logS",), seed=0, task=None, **table):
        folder = tmp_path_factory.mktemp("runs") / name
        torch.manual_seed(seed)
        wide = {"input.descriptors": len(table.get("descriptors", ()))}
        outputs = {"task.outputs": len(targets)}
        config = GRASSConfig().override(MOLECULES | TINY | wide | outputs | (task or {}))
        schema = {"smiles": "smiles", "targets": list(targets), **table}
        reader = MoleculeReader(fingerprints=True)
        known = np.stack([reader("C" * size).fingerprint for size in range(3, 20)])
        checksum = SimilarityReference.of(known).save(folder)
        data = {"origin": {"table": "secret/place/solubility.csv"}}
        save_model(
            GRASS(config), folder, table=schema, seed=3, data=data, similarity_sha256=checksum
        )
        return folder

    return write


@pytest.fixture(scope="module")
def run(write_run):
    """A calibrated regression with results."""
    folder = write_run()
    write_calibration(folder, "logS", scale=2.5, rewirings=3)
    test = {"metric": "mae", "averaged": {"1": 0.5, "16": 0.4321}, "averaged_interval": [0.4, 0.5]}
    write_json(folder / "results.json", {"test": test})
    return folder


@pytest.fixture(scope="module")
def graph_run(tmp_path_factory):
    """Write a run on custom graphs, with its data, and the numbers of the rows of each split."""

    def write(sizes=(7, 9, 11), masks=None, **changes):
        settings = {name.replace("__", "."): value for name, value in changes.items()}
        config = GRASSConfig().override(TINY | {"input.nodes.kind": "index"} | settings)
        torch.manual_seed(0)
        graphs = [random_input(config, size, seed) for seed, size in enumerate(sizes)]
        for graph in graphs:
            for split, rows in (masks or {}).items():
                graph[f"{split}_mask"] = torch.isin(torch.arange(len(graph.y)), torch.tensor(rows))
        folder = tmp_path_factory.mktemp("graphs")
        prepared = prepare(dict.fromkeys(SPLITS, graphs), config, folder / "data")
        data = {"origin": {"prepared": prepared.folder.name}}
        save_model(GRASS(config), folder, seed=0, data=data)
        return folder

    return write


@pytest.fixture(scope="module")
def open_page():
    """A client of the page of some runs, which asks as the page itself does."""
    clients = []

    def open_one(*folders, limits=None, rewirings=3, **options):
        app = page_of(folders, limits or Limits(), rewirings)
        address = "http://127.0.0.1:8321"
        client = TestClient(app, base_url=address, headers={"origin": address}, **options)
        clients.append(client.__enter__())
        return clients[-1]

    yield open_one
    for client in clients:
        client.__exit__()


@pytest.fixture(scope="module")
def client(run, open_page):
    """A client of the page of the calibrated regression."""
    return open_page(run)
