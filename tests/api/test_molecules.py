"""Molecules as graphs: OGB's own features, ZINC's own files, canonical orders."""

import pickle
import random
import subprocess
import sys
import time

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tables import some_smiles
from torch_geometric.data import Data

from fuzz import structures
from grass_gnn import GrassError
from grass_gnn.api.graphs import GraphReader
from grass_gnn.config import OGB_ATOM_SIZES
from grass_gnn.data.tables import features, reading
from grass_gnn.data.tables.dataset import random_split, scaffold_split
from grass_gnn.data.tables.features import input_config, zinc_molecule
from grass_gnn.data.tables.molecules import MoleculeReader
from grass_gnn.data.tables.parsing import UnreadableMolecule, parse
from grass_gnn.data.tables.reading import ReadingPool, read_scaffolds
from grass_gnn.files import is_running

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
    identical_order, other_types = 0, []
    for line, graph in zip(lines[:300], graphs, strict=False):
        smiles, target = line.split(",")
        found = reader(smiles)
        types, official = found.x[:, 0], np.asarray(graph["bond_type"], dtype=int)
        bonds = np.zeros((len(types), len(types)), dtype=int)
        bonds[tuple(found.edge_index)] = found.edge_attr[:, 0]
        if sorted(types.tolist()) != sorted(graph["atom_type"].tolist()):
            other_types.append(smiles)
            continue
        assert np.bincount(bonds.ravel()).tolist() == np.bincount(official.ravel()).tolist()
        assert _bonded_atoms(types, bonds) == _bonded_atoms(graph["atom_type"], official)
        assert float(target) == pytest.approx(float(graph["logP_SA_cycle_normalized"]), abs=1e-6)
        identical_order += types.tolist() == graph["atom_type"].tolist()
    assert identical_order > 200  # atoms are renumbered in few molecules
    assert len(other_types) == 1  # the benchmark leaves one of its four stereocentres open


def test_zincs_atoms_do_not_depend_on_how_a_molecule_is_written(shared_data):
    """Without stereochemistry, with explicit hydrogens, or read from a file of coordinates."""
    from rdkit import Chem

    with (shared_data / "zinc" / "raw" / "test.pickle").open("rb") as file:
        graphs = pickle.load(file)
    lines = (shared_data / "zinc" / "test.csv").read_text().splitlines()[1:]
    reader = MoleculeReader("zinc")
    for line, graph in zip(lines[:100], graphs, strict=False):
        mol = Chem.MolFromSmiles(line.split(",")[0])
        expected = sorted(graph["atom_type"].tolist())
        flat = Chem.MolToSmiles(mol, isomericSmiles=False)
        spelled = Chem.MolToSmiles(mol, allHsExplicit=True)
        found = [reader(flat), reader(spelled)]
        found.append(reader.read(Chem.MolFromMolBlock(Chem.MolToMolBlock(mol))))
        assert all(sorted(one.x[:, 0].tolist()) == expected for one in found), line


def test_molecules_of_zincs_graphs_are_those_of_its_smiles(shared_data):
    from rdkit import Chem

    with (shared_data / "zinc" / "raw" / "val.pickle").open("rb") as file:
        graphs = pickle.load(file)
    lines = (shared_data / "zinc" / "val.csv").read_text().splitlines()[1:]
    for line, graph in zip(lines[:300], graphs, strict=False):
        bonds = torch.as_tensor(np.asarray(graph["bond_type"], dtype=int))
        ends = bonds.nonzero().T
        types = torch.as_tensor(np.asarray(graph["atom_type"], dtype=int))
        mol = zinc_molecule(Data(x=types[:, None], edge_index=ends, edge_attr=bonds[tuple(ends)]))
        expected = Chem.MolFromSmiles(line.split(",")[0])
        assert Chem.MolToSmiles(mol) == Chem.MolToSmiles(expected, isomericSmiles=False)


def test_atoms_outside_of_zincs_vocabulary_are_read_as_near_ones():
    reader = MoleculeReader("zinc")
    found = reader("C[Si](C)(C)[N+](C)(C)C")
    assert found.x[1, 0] == 0 and found.note == "Si read as C"
    assert reader("[OH3+]").x[0, 0] == 19  # O +, as there is no O H3 +
    assert reader("CC").note == ""


def test_canonical_order_gives_one_graph_for_all_writings():
    from rdkit import Chem

    reader = MoleculeReader("ogb-cip", canonical_order=True)
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
    for name in ("ogb", "zinc"):
        data = MoleculeReader(name)("C").data
        assert data.edge_index.shape == (2, 0) and data.edge_attr.shape[0] == 0
        assert data.edge_index.dtype == torch.int64


def test_reading_in_processes_gives_the_same_in_order():
    texts = [*some_smiles(300), "no", "", "C" * 30_000, *ODD]
    reader = MoleculeReader(fingerprints=True, identity=True)
    with ReadingPool(reader, 2) as pool:
        for one, other in zip(pool.read(texts), map(reader.try_read, texts), strict=True):
            assert type(one) is type(other)
            if isinstance(one, str):
                assert one == other
            else:
                assert (one.x == other.x).all() and one.canonical == other.canonical
                assert (one.fingerprint == other.fingerprint).all()


def test_reasons():
    for text, words in (("C(C)(C)(C)(C)C", "molecule is not valid"), ("C" * 2000, "2,000 atoms")):
        with pytest.raises(UnreadableMolecule, match=words):
            parse(text)


@pytest.mark.parametrize("features", ["ogb-cip", "ogb", "zinc"])
def test_marks_that_the_graph_does_not_contain_are_no_part_of_the_identity(features):
    reader = MoleculeReader(features, canonical_order=True, identity=True)
    for plain, marked in (
        ("CCO", "[CH3:7][13CH2:1][OH:2]"),
        ("C[C@H](N)C(=O)O", "[15NH2][C@@H:4](C)C(=O)O"),
        ("[2H]c1ccccc1", "[2H:2][13c]1ccccc1"),
    ):
        one, other = reader(plain), reader(marked)
        assert one.canonical == other.canonical
        assert one.x[:, 0].tolist() == other.x[:, 0].tolist()
        assert one.edge_index.tolist() == other.edge_index.tolist()
    # A centre only because of the isotope.
    assert reader("CC(C)O").canonical == reader("[13CH3][C@H](C)O").canonical
    assert reader("C").canonical != reader("[2H]C").canonical  # which has another atom


def test_scaffolds_stay_together_and_random_splits_follow_their_seed():
    assert read_scaffolds(["CCc1ccccc1O", "CCC", "C(C)O"], workers=1) == ["c1ccccc1", "CCC", "CCO"]
    names = ["a"] * 5 + ["b"] * 3 + ["c", "d", "", ""]
    marked = ["CC[c:3]1[13cH]cccc1", "[CH3:1][CH2:2][OH:3]"]
    assert read_scaffolds(marked, workers=1) == ["c1ccccc1", "CCO"]
    drawn = scaffold_split(names, (0.6, 0.2, 0.2))
    for name in "ab":
        assert len({split for split, own in zip(drawn, names, strict=True) if own == name}) == 1
    assert set(drawn) == {"train", "val", "test"}
    assert random_split(50, seed=1) == random_split(50, seed=1) != random_split(50, seed=2)
    assert sorted(random_split(10)) == sorted(["train"] * 8 + ["val", "test"])


SHARES = st.tuples(*[st.sampled_from([0, 0.1, 0.3, 0.8, 2])] * 3).filter(any)


@settings(deadline=None)
@given(
    groups=st.lists(st.sampled_from(["a", "b", "c", "d", ""]), min_size=1, max_size=60),
    shares=SHARES,
    seed=st.integers(0, 9),
)
def test_splits_keep_groups_together_and_leave_out_what_has_no_share(groups, shares, seed):
    labels = [float(ord(name[:1] or "e")) for name in groups]
    found = {
        "random": random_split(len(groups), shares, seed),
        "stratified": random_split(len(groups), shares, seed, labels),
        "scaffold": scaffold_split(groups, shares),
    }
    assert found["random"] == random_split(len(groups), shares, seed)
    assert found["stratified"] == random_split(len(groups), shares, seed, labels)
    for kind, assigned in found.items():
        assert len(assigned) == len(groups) and set(assigned) <= {"train", "val", "test"}
        for split, share in zip(("val", "test"), shares[1:], strict=True):
            assert share or split not in assigned, kind
    for name in set(groups) - {""}:
        places = [place for place, own in enumerate(groups) if own == name]
        assert len({found["scaffold"][place] for place in places}) == 1


CHIRAL = [
    "C[C@H](N)C(=O)O",
    "C[C@@H]1CC[C@H](C)CC1",  # stereocentres without CIP labels
    "OC[C@H]1O[C@@H](O)[C@H](O)[C@@H](O)[C@@H]1O",
    "C[C@]12CC[C@H]3[C@@H](CC=C4C[C@@H](O)CC[C@]34C)[C@@H]1CC[C@@H]2O",
    "F[C@](Cl)(Br)I",
    "C[S@](=O)c1ccccc1",
]


def test_chirality_does_not_depend_on_how_a_molecule_is_written():
    from rdkit import Chem

    source = random.Random(0)
    by_label = MoleculeReader("ogb-cip", canonical_order=True)
    by_tag = MoleculeReader("ogb", canonical_order=True)
    tags_differ = 0
    for smiles in CHIRAL:
        mol = parse(smiles)
        for _ in range(10):
            order = source.sample(range(mol.GetNumAtoms()), mol.GetNumAtoms())
            text = Chem.MolToSmiles(Chem.RenumberAtoms(mol, order), canonical=False)
            assert (by_label(smiles).x == by_label(text).x).all(), text
            tags_differ += (by_tag(smiles).x != by_tag(text).x).any()
    assert tags_differ  # OGB's own feature depends on it
    left, right = (by_label(text).x[:, 1] for text in ("C[C@H](N)O", "C[C@@H](N)O"))
    assert sorted(left) != sorted(right)


def test_cip_features_differ_from_ogbs_in_the_chirality_column_alone():
    for smiles in [*CHIRAL, *some_smiles(20)]:
        first, second = MoleculeReader("ogb")(smiles), MoleculeReader("ogb-cip")(smiles)
        assert (np.delete(first.x, 1, axis=1) == np.delete(second.x, 1, axis=1)).all()
        assert (first.edge_attr == second.edge_attr).all()
        assert ((first.x[:, 1] > 0) == (second.x[:, 1] > 0)).all()


def test_atom_columns_are_those_of_the_configuration():
    assert list(features._OGB_ATOM_SIZES) == OGB_ATOM_SIZES
    for name, vocabulary in features.VOCABULARIES.items():
        assert len(input_config(name).edges.categories) == vocabulary.bond_columns


@pytest.mark.parametrize(
    "text", ["\u00c7C", "C\U0001f600", "C\u00a0C", "C C", "C\tC", "CCO ethanol", "C\x07"]
)
def test_a_text_that_is_only_partly_a_smiles_is_refused(text):
    with pytest.raises(UnreadableMolecule):
        parse(f"C{text}" if text.isascii() else text)


def test_extensions_between_bars_are_read():
    assert parse(" [CH2]C |^1:0| ").GetNumAtoms() == 2
    with pytest.raises(UnreadableMolecule):
        parse("CC |^1:0| name")


@pytest.mark.parametrize("name", sorted(structures.HARD.keys() - {"theta"}))
def test_structures_that_rdkit_cannot_cope_with_are_refused_by_their_rings(name):
    with pytest.raises(UnreadableMolecule, match="rings"):
        parse(structures.smiles_of(structures.HARD[name]))


# fmt: off
REAL = {
    "C60": "c12c3c4c5c1c1c6c7c2c2c8c3c3c9c4c4c%10c5c5c1c1c6c6c%11c7c2c2c7c8c3c3c8c9c4c4c9c%10c5c5c1"
           "c1c6c6c%11c2c2c7c3c3c8c4c4c9c5c1c1c6c2c3c41",
    "cubane": "C12C3C4C1C5C2C3C45",
    "adamantane": "C1C2CC3CC1CC(C2)C3",
    "ferrocene": "[Fe]12345678(C9C1C2C3C94)C%10C5C6C7C8%10",
    "macrocycle": "C1" + "CO" * 100 + "1",
    "peptide": "N" + "C(Cc1ccccc1)C(=O)N" * 80 + "C",
    "dendrimer": "C(CC(CC(C)C)CC(C)C)(CC(CC(C)C)CC(C)C)" * 20 + "C",
    "polyphenylene": "c1ccc(cc1)" * 60 + "C",
    "nanographene": structures.smiles_of(structures.lattice(2, 60), "C"),
}
# fmt: on


@pytest.mark.parametrize("name", REAL)
def test_cages_peptides_and_macrocycles_are_read(name):
    assert parse(REAL[name]).GetNumAtoms() > 5


def unchecked(monkeypatch):
    """Let workers read structures that the parent process would reject."""
    found = "from grass_gnn.data.tables.reading import work"
    patch = "import grass_gnn.data.tables.parsing as m; m._check_structure = lambda *_: None; "
    monkeypatch.setattr(reading, "_START", reading._START.replace(found, patch + found))


def test_a_crash_or_a_stall_costs_one_row(monkeypatch):
    unchecked(monkeypatch)
    hard = [structures.smiles_of(structures.HARD[name]) for name in ("hypercube", "bipartite")]
    texts = ["CCO"] * 40 + hard + ["CCN"] * 40
    with ReadingPool(MoleculeReader(identity=True), 2) as pool:
        found = list(pool.read(texts))
        again = list(pool.read(["CCC"]))
    assert [place for place, one in enumerate(found) if isinstance(one, str)] == [40, 41]
    assert [one.canonical for one in found[42:]] == ["CCN"] * 40
    assert "RDKit" in found[40] and again[0].canonical == "CCC"


THETA = structures.smiles_of(structures.HARD["theta"])  # within the limits; RDKit crashes on it


def test_no_molecule_is_read_in_this_process():
    """Not without workers, from lists in Python, or for their scaffolds."""
    with ReadingPool(MoleculeReader(), 0) as pool:
        found = list(pool.read(["CCO", THETA, "CCN"]))
    assert [isinstance(one, str) for one in found] == [False, True, False]
    assert "RDKit crashed" in found[1]
    with pytest.raises(ValueError, match=r"X\[1\] cannot be read: RDKit crashed"):
        GraphReader().read(["CCO", THETA])
    assert read_scaffolds(["C1CC1C", THETA], workers=1) == ["C1CC1", THETA]


def test_a_molecule_that_takes_too_long_is_given_up(monkeypatch):
    unchecked(monkeypatch)
    slow = "import grass_gnn.data.tables.reading as r; r.CPU_SECONDS = 0.05; "
    started = reading._START.replace("from grass", slow + "from grass", 1)
    monkeypatch.setattr(reading, "_START", started)
    stalled = structures.smiles_of(structures.lattice(2, 500))
    with ReadingPool(MoleculeReader(), 1) as pool:
        found = list(pool.read(["C", stalled, "CC"]))
    assert [isinstance(one, str) for one in found] == [False, True, False]
    assert "did not parse" in found[1]


def test_workers_end_with_the_process_that_started_them(tmp_path):
    """However it ends: here by SIGKILL while they are idle, and while they are reading."""
    script = """
import os, signal, sys
from grass_gnn.data.tables.molecules import MoleculeReader
from grass_gnn.data.tables.reading import ReadingPool
pool = ReadingPool(MoleculeReader(), 2)
list(pool.read(["CCO"] * 100))
print(*[worker.process.pid for worker in pool._all], flush=True)
if sys.argv[1] == "reading":
    pool.read(["CCO" * 50] * 20_000)
os.kill(os.getpid(), signal.SIGKILL)
"""
    for moment in ("idle", "reading"):
        ended = subprocess.run(
            [sys.executable, "-c", script, moment], capture_output=True, text=True, timeout=120
        )
        workers = [int(word) for word in ended.stdout.split()]
        assert len(workers) == 2 and ended.returncode == -9
        for _ in range(100):
            if not any(is_running(worker) for worker in workers):
                break
            time.sleep(0.1)
        assert not any(is_running(worker) for worker in workers)


@pytest.mark.usefixtures("fresh_readers")  # one that has started may have answered by then
def test_closing_a_pool_in_the_middle_of_a_molecule(monkeypatch):
    unchecked(monkeypatch)
    pool = ReadingPool(MoleculeReader(), 1)
    found = pool.read([structures.smiles_of(structures.bipartite(20))])
    while not pool._all:
        time.sleep(0.01)
    pool.close()
    with pytest.raises(GrassError):
        list(found)
    assert pool._all == [] or all(one.process.poll() is not None for one in pool._all)
