"""Molecules as graphs: OGB's own features, ZINC's own files, canonical orders."""

import pickle
import random

import networkx as nx
import numpy as np
import pytest
import torch
from small_tables import some_smiles

from grass_gnn.data.tables.molecules import (
    MoleculeReader,
    ReadingPool,
    UnreadableMolecule,
    parse,
    scaffold,
)
from grass_gnn.data.tables.splits import random_split, scaffold_split

ODD = [
    "C",
    "[Na+].[Cl-]",
    "*C",
    "[U]",
    "F/C=C/F",
    "F/C=C\\F",
    "C[C@H](N)O",
    "[2H]C",
    "[CH3]",
    "B#N",
]


def test_ogb_features_are_those_of_ogb():
    smiles2graph = pytest.importorskip("ogb.utils").smiles2graph
    reader = MoleculeReader()
    for smiles in [*some_smiles(50), *ODD]:
        expected, found = smiles2graph(smiles), reader(smiles).data
        assert found.x.numpy().tolist() == expected["node_feat"].tolist(), smiles
        assert found.edge_index.numpy().tolist() == expected["edge_index"].tolist()
        assert found.edge_attr.numpy().tolist() == expected["edge_feat"].tolist()


def _bonded_atoms(types, bonds):
    """Atoms with the orders of their bonds left out: RDKit's Kekulé form is not the benchmark's."""
    graph = nx.from_numpy_array(np.asarray(bonds) > 0)
    nx.set_node_attributes(graph, dict(enumerate(map(int, types))), "type")
    return nx.weisfeiler_lehman_graph_hash(graph, node_attr="type")


def test_zinc_features_are_those_of_the_benchmarks_files(shared_data):
    with (shared_data / "zinc" / "raw" / "val.pickle").open("rb") as file:
        graphs = pickle.load(file)
    lines = (shared_data / "zinc" / "val.csv").read_text().splitlines()[1:]
    reader = MoleculeReader("zinc")
    identical_order = 0
    for line, graph in zip(lines[:300], graphs, strict=False):
        smiles, target = line.split(",")
        found = reader(smiles)
        types, official = found.x[:, 0], np.asarray(graph["bond_type"], dtype=int)
        bonds = np.zeros((len(types), len(types)), dtype=int)
        bonds[tuple(found.edge_index)] = found.edge_attr[:, 0]
        assert sorted(types.tolist()) == sorted(graph["atom_type"].tolist())
        assert np.bincount(bonds.ravel()).tolist() == np.bincount(official.ravel()).tolist()
        assert _bonded_atoms(types, bonds) == _bonded_atoms(graph["atom_type"], official)
        assert float(target) == pytest.approx(float(graph["logP_SA_cycle_normalized"]), abs=1e-6)
        identical_order += types.tolist() == graph["atom_type"].tolist()
    assert identical_order > 200  # atoms are renumbered in few molecules


def test_atoms_outside_of_zincs_vocabulary_are_read_as_near_ones():
    reader = MoleculeReader("zinc")
    found = reader("C[Si](C)(C)[N+](C)(C)C")
    assert found.x[1, 0] == 0 and found.note == "Si read as C"
    assert reader("[OH3+]").x[0, 0] == 19  # O +, as there is no O H3 +
    assert reader("CC").note == ""


def test_canonical_order_gives_one_graph_for_all_writings():
    from rdkit import Chem

    reader = MoleculeReader(canonical_order=True)
    source = random.Random(0)
    for smiles in some_smiles(20):
        mol = parse(smiles)
        first = reader(smiles)
        for _ in range(3):
            order = source.sample(range(mol.GetNumAtoms()), mol.GetNumAtoms())
            text = Chem.MolToSmiles(Chem.RenumberAtoms(mol, order), canonical=False)
            other = reader(text)
            assert (first.x == other.x).all()
            assert (first.edge_index == other.edge_index).all()
            assert (first.edge_attr == other.edge_attr).all()


def test_single_atoms_have_no_edges():
    for features in ("ogb", "zinc"):
        data = MoleculeReader(features)("C").data
        assert data.edge_index.shape == (2, 0) and data.edge_attr.shape[0] == 0
        assert data.edge_index.dtype == torch.int64


def test_reading_in_processes_gives_the_same_in_order():
    texts = [*some_smiles(300), "no", "", "C" * 30_000, *ODD]
    reader = MoleculeReader(fingerprints=True, identity=True)
    with ReadingPool(reader, 2) as pool, ReadingPool(reader, 0) as alone:
        for one, other in zip(pool.read(texts), alone.read(texts), strict=True):
            assert type(one) is type(other)
            if isinstance(one, str):
                assert one == other
            else:
                assert (one.x == other.x).all() and one.canonical == other.canonical
                assert (one.fingerprint == other.fingerprint).all()


def test_reasons():
    for text, words in (("C(C)(C)(C)(C)C", "not possible"), ("C" * 2000, "2,000 atoms")):
        with pytest.raises(UnreadableMolecule, match=words):
            parse(text)


def test_scaffolds_stay_together_and_random_splits_follow_their_seed():
    assert scaffold("CCc1ccccc1O") == "c1ccccc1" and scaffold("CCC") == ""
    names = ["a"] * 5 + ["b"] * 3 + ["c", "d", "", ""]
    drawn = scaffold_split(names, (0.6, 0.2, 0.2))
    for name in "ab":
        assert len({split for split, own in zip(drawn, names, strict=True) if own == name}) == 1
    assert set(drawn) == {"train", "val", "test"}
    assert random_split(50, seed=1) == random_split(50, seed=1) != random_split(50, seed=2)
    assert sorted(random_split(10)) == sorted(["train"] * 8 + ["val", "test"])
