import math

import numpy as np
import pytest
import torch
from small_tables import TINY, read_csv, some_smiles, write_csv

from grass_gnn.api.fitting import fit_table
from grass_gnn.api.prediction import predict_table
from grass_gnn.data.tables.dataset import read_tables
from grass_gnn.data.tables.descriptors import choose_descriptors, descriptor_names
from grass_gnn.data.tables.molecules import MoleculeReader
from grass_gnn.data.tables.spec import TableSpec
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.trained import load_model
from grass_gnn.nn.norm import DescriptorNorm, InputNorm


def test_fixed_statistics_bound_what_reaches_the_head():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(200, 4, generator=generator)
    values[:, 1] = 0.0
    values[3, 1] = 1.0  # one molecule with a rare group
    values[:, 2] = torch.exp(8 * values[:, 2])  # heavy tail
    values[:, 3] = 5.0
    norm = DescriptorNorm(4)
    norm.limit = 8.0
    norm.fit(values)
    training = norm(values)
    assert float(training.abs().max()) <= 6.001
    assert float(training[:, 2].std()) > 0.3  # the tail does not hide the other values
    assert not training[:, 3].any()
    # The same in evaluation and for any batch; new values are bounded.
    assert torch.equal(norm(values[:1]), training[:1])
    assert torch.equal(norm.eval()(values), training)
    assert float(norm(torch.full((1, 4), 1e12)).abs().max()) == 8.0


def test_statistics_are_saved_and_older_models_load():
    values = torch.randn(50, 3)
    norm, again, older = DescriptorNorm(3), DescriptorNorm(3), DescriptorNorm(3)
    norm.fit(values)
    again.load_state_dict(norm.state_dict())
    assert again.frozen and torch.equal(again(values), norm(values))
    batches = InputNorm(3)
    batches(values)
    older.load_state_dict(batches.state_dict())
    assert not older.frozen
    assert torch.equal(older.eval()(values), batches.eval()(values))


def test_undefined_and_constant_descriptors():
    values = np.array([[1.0, 2.0, math.nan, 4.0], [1.0, 3.0, math.nan, math.nan], [1.0, 7, 1, 5]])
    kept, median = choose_descriptors(values)
    assert kept.tolist() == [1, 3]
    assert median.tolist() == [3.0, 4.5]
    with pytest.raises(GrassError, match="NoSuchDescriptor"):
        MoleculeReader(descriptors={"NoSuchDescriptor": 0.0})


def test_large_and_odd_molecules_have_descriptors():
    reader = MoleculeReader(descriptors=dict.fromkeys(descriptor_names(), 0.5))
    for smiles in ("[Fe]", "[Na+].[Cl-]", "[2H]C([2H])[2H]", "C" * 400):
        found = reader(smiles).descriptors
        assert len(found) > 200 and np.isfinite(found).all()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with RDKit descriptors and one column; the target is the column."""
    folder = tmp_path_factory.mktemp("descriptors")
    rows = [[text, n % 7, n % 7] for n, text in enumerate(some_smiles(40))]
    table = write_csv(folder / "own.csv", ["smiles", "t", "y"], rows)
    fit_table(table, "y", folder / "run", descriptors=["rdkit", "t"], settings=TINY)
    return table, folder / "run"


def test_predict_computes_descriptors_again(run, tmp_path):
    table, folder = run
    model = load_model(folder)
    schema = model.card["table"]
    assert schema["descriptors"] == ["t"] and "MolLogP" in schema["rdkit"]
    assert model.config.input.descriptors == 1 + len(schema["rdkit"])
    out = tmp_path / "out.csv"
    summary = predict_table(model, table, out, deterministic=True)
    assert summary.failed == 0
    # Another table, of which one molecule has no partial charges: its row is predicted, too.
    other = write_csv(tmp_path / "new.csv", ["smiles", "t"], [["CCO", 1], ["[Fe]", 2]])
    assert predict_table(model, other, out).predicted == 2
    assert all(math.isfinite(float(row["y_pred"])) for row in read_csv(out))


def test_all_splits_share_names_and_medians(run):
    table, _ = run
    schemas = [
        read_tables(table, TableSpec(("y",), descriptors=("rdkit",)), seed, workers=0).schema
        for seed in (0, 1)
    ]
    assert schemas[0] == schemas[1]  # else runs could not be averaged
