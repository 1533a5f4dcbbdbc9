import random

import pytest
import torch
from rdkit import Chem

from grass_gnn import GRASSConfig
from grass_gnn.data.packed.dataset import PackedDataset, pack
from grass_gnn.data.packed.kekule import DOUBLE, SINGLE, kekule_forms
from grass_gnn.data.packed.loader import GraphLoader, TrainingLoader
from grass_gnn.data.tables.features import zinc_molecule
from grass_gnn.data.tables.molecules import MoleculeReader
from grass_gnn.errors import GrassError

# Numbers of Kekulé structures from the literature on benzenoid hydrocarbons, and rings without any
# choice: with a lone pair, with 4n atoms, or with an atom that is not part of the double bonds.
COUNTS = {
    "c1ccccc1": 2,
    "Cc1ccncc1": 2,
    "c1ccc2ccccc2c1": 3,
    "c1ccc2cc3ccccc3cc2c1": 4,
    "c1ccc2c(c1)ccc1ccccc12": 5,
    "c1cc2ccc3cccc4ccc(c1)c2c34": 6,
    "c1ccc2c(c1)c1ccccc1c1ccccc21": 9,
    "c1cc2ccc3ccc4ccc5ccc6ccc1c1c2c3c4c5c61": 20,
    "c1ccccc1-c1ccccc1": 4,
    "c1ccc2cccc-2cc1": 2,  # azulene: the outline of ten atoms
    "c1ccoc1": 1,
    "C1=CC=CC=CC=C1": 1,
    "O=C1C=CC(=O)C=C1": 1,
    "CC=CC#N": 1,
    "CC": 1,
}
DRUGS = [
    "C",
    "CC(=O)Oc1ccccc1C(=O)O",
    "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    "O=S(=O)(Nc1ncccn1)c1ccc(N)cc1",
    "COc1ccc2[nH]cc(CCNC(C)=O)c2c1",
    "Clc1ccc(cc1)C(c1ccccc1)N1CC[NH+](CC1)CC(=O)[O-]",
    "c1ccc(cc1)-c1nc2ccccc2s1",
]


def graph_of(smiles):
    graph = MoleculeReader("zinc")(smiles).data
    graph.x, graph.edge_index, graph.edge_attr = map(
        torch.as_tensor, (graph.x, graph.edge_index, graph.edge_attr)
    )
    graph.y = torch.zeros(1, 1)
    return graph


def molecule_of(graph):
    return zinc_molecule(graph.clone().update({"edge_attr": graph.edge_attr.flatten()}))


def forms_of(graph):
    return kekule_forms(graph.edge_index, graph.edge_attr.flatten())


@pytest.mark.parametrize(("smiles", "count"), COUNTS.items())
def test_the_number_of_forms_is_that_of_the_literature(smiles, count):
    forms = forms_of(graph_of(smiles))
    assert len(forms) == len(forms.unique(dim=0)) == count


@pytest.mark.parametrize("smiles", [*COUNTS, *DRUGS])
def test_all_forms_are_the_same_molecule(smiles):
    graph = graph_of(smiles)
    forms = forms_of(graph)
    assert forms[0].equal(graph.edge_attr.flatten())
    expected = Chem.MolToSmiles(molecule_of(graph))
    for form in forms:
        graph.edge_attr = form
        assert Chem.MolToSmiles(molecule_of(graph)) == expected


@pytest.mark.parametrize("smiles", [*COUNTS, *DRUGS])
def test_the_form_of_rdkit_is_among_them_for_any_order_of_the_atoms(smiles):
    graph = graph_of(smiles)
    forms = forms_of(graph)
    for seed in range(5):
        order = random.Random(seed).sample(range(graph.num_nodes), graph.num_nodes)
        molecule = Chem.RenumberAtoms(molecule_of(graph), order)
        Chem.Kekulize(molecule, clearAromaticFlags=True)
        place = {atom: number for number, atom in enumerate(order)}
        form = [
            int(molecule.GetBondBetweenAtoms(place[a], place[b]).GetBondTypeAsDouble())
            for a, b in graph.edge_index.t().tolist()
        ]
        assert (forms == torch.tensor(form, dtype=forms.dtype)).all(dim=1).any()


CONFIG = GRASSConfig.preset("zinc", **{"training.kekule_forms": True, "encoding.steps": 4})


def packed(smiles) -> PackedDataset:
    return pack([graph_of(one) for one in smiles], CONFIG)


def test_training_draws_all_forms_equally_often():
    dataset = packed(["C1=CC=CC=CC=C1", "c1ccc2ccccc2c1", "CCO"] * 20)
    ids = torch.tensor([1, 0, 2, 4])
    plain = dataset.select(ids)
    loader = TrainingLoader(dataset, CONFIG, 4)
    forms = forms_of(graph_of("c1ccc2ccccc2c1"))
    counts = torch.zeros(2, len(forms))
    for epoch in range(300):
        loader.set_epoch(epoch)
        drawn, _ = loader.draw(ids)
        graph = drawn.node_graph[drawn.edge_index[0]]
        assert drawn.edge_index.equal(plain.edge_index)
        assert drawn.edge_attr.dtype == plain.edge_attr.dtype
        fixed = (graph == 1) | (graph == 2)  # cyclooctatetraene and ethanol
        assert drawn.edge_attr[fixed].equal(plain.edge_attr[fixed])
        for row, number in enumerate((0, 3)):
            same = (forms == drawn.edge_attr[graph == number].flatten()).all(dim=1)
            assert same.sum() == 1
            counts[row] += same
    assert counts.min() > 70  # 100 expected, with a standard deviation of 8
    # Two graphs of the same molecule are drawn independently.
    assert counts[0].ne(counts[1]).any()


def test_forms_change_from_epoch_to_epoch_but_not_with_the_workers():
    dataset = packed(DRUGS * 3)

    def kinds(epoch, workers, kind=TrainingLoader):
        loader = kind(dataset, CONFIG, 6, workers=workers)
        loader.set_epoch(epoch)
        return [batch.edge_attr[batch.input_edges] for batch in loader]

    for epoch in (0, 5):
        for a, b in zip(kinds(epoch, 0), kinds(epoch, 3), strict=True):
            assert a.equal(b)
    assert not all(a.equal(b) for a, b in zip(kinds(0, 0), kinds(5, 0), strict=True))
    # Evaluation sees the graphs as they are.
    for a, b in zip(kinds(0, 0, GraphLoader), kinds(5, 2, GraphLoader), strict=True):
        assert a.equal(b)


def test_other_bonds_are_refused():
    with pytest.raises(GrassError, match=r"training\.kekule_forms needs .*vocabulary zinc"):
        GRASSConfig.preset("mnist", **{"training.kekule_forms": True})
    with pytest.raises(GrassError, match="vocabulary zinc"):
        GRASSConfig().override({"training.kekule_forms": True})
    nodes = {"training.sampling": "partition", "task.level": "node"}
    with pytest.raises(GrassError, match=r"does not work with training\.sampling"):
        CONFIG.override(nodes)


def test_graphs_that_are_not_molecules_are_refused():
    pairs = torch.combinations(torch.arange(12)).t()
    edges = torch.cat([pairs, pairs.flip(0)], dim=1)
    with pytest.raises(GrassError, match="a node has 11 neighbours"):
        kekule_forms(edges, torch.randint(1, 3, (edges.size(1),)))
    # A self-loop is no bond.
    benzene = graph_of("c1ccccc1")
    edges = torch.cat([benzene.edge_index, torch.tensor([[2], [2]])], dim=1)
    kinds = torch.cat([benzene.edge_attr.flatten(), torch.tensor([DOUBLE])])
    assert kekule_forms(edges, kinds)[:, :-1].equal(forms_of(benzene))


def test_the_types_are_those_of_the_vocabulary():
    single, double = (graph_of(smiles).edge_attr for smiles in ("CC", "C=C"))
    assert single.unique().tolist() == [SINGLE]
    assert double.unique().tolist() == [DOUBLE]
