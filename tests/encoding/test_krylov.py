"""Eigenpairs of large graphs: correct, with a true error estimate, and resumable after a kill."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from grass_gnn.encoding import decompose
from grass_gnn.encoding import drrwp as decomposition
from grass_gnn.encoding import eigen as krylov
from grass_gnn.encoding import eigen as spectrum
from grass_gnn.encoding.eigen import leading_eigenpairs
from grass_gnn.progress import silent


def walk_matrix(num_nodes: int, mean_degree: float, seed: int = 0, copies: int = 1):
    """T_sym of a random graph, or of several copies of it side by side."""
    random = np.random.default_rng(seed)
    pairs = random.integers(num_nodes, size=(2, int(num_nodes * mean_degree / 2)))
    edges = torch.from_numpy(np.concatenate([pairs, pairs[::-1]], axis=1))
    matrix = spectrum.adjacency(edges, num_nodes)
    return spectrum.normalised(sp.block_diag([matrix] * copies, format="csr"))


def dense_largest(matrix, count: int) -> np.ndarray:
    values = np.linalg.eigvalsh(matrix.toarray())
    return values[np.argsort(-np.abs(values))[:count]]


def test_agrees_with_a_dense_solver() -> None:
    matrix = walk_matrix(900, 8)
    found = leading_eigenpairs(matrix, 12, tolerance=1e-9)
    np.testing.assert_allclose(np.sort(found.values), np.sort(dense_largest(matrix, 12)), atol=1e-9)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(12), atol=1e-10)
    residuals = np.linalg.norm(matrix @ found.vectors - found.vectors * found.values, axis=0)
    assert found.residual == pytest.approx(residuals.max())
    assert found.residual < 2e-9
    # The projector, which is all that D-RRWP sees, is that of the exact vectors.
    values, vectors = np.linalg.eigh(matrix.toarray())
    exact = vectors[:, np.argsort(-np.abs(values))[:12]]
    np.testing.assert_allclose(found.vectors @ found.vectors.T, exact @ exact.T, atol=1e-6)


def test_copies_of_eigenvalues_are_not_missed() -> None:
    matrix = walk_matrix(200, 8, copies=4)
    found = leading_eigenpairs(matrix, 9, tolerance=1e-8)
    np.testing.assert_allclose(np.sort(found.values), np.sort(dense_largest(matrix, 9)), atol=1e-7)


def test_a_graph_without_edges_and_one_with_a_few() -> None:
    empty = leading_eigenpairs(sp.csr_array((300, 300)), 3)
    assert not empty.values.any() and empty.residual == 0
    few = sp.csr_array(([1.0, 1.0], ([4, 9], [9, 4])), shape=(300, 300))
    found = leading_eigenpairs(few, 3)
    np.testing.assert_allclose(np.sort(found.values), [-1, 0, 1], atol=1e-6)


class Killed(Exception):
    pass


def test_a_killed_search_resumes_to_the_same_bits(tmp_path) -> None:
    matrix = walk_matrix(3000, 6)
    settings = {"tolerance": 1e-7, "save_seconds": 0.0}
    expected = leading_eigenpairs(matrix, 6, **settings)
    state = tmp_path / "deep" / "state.npz"
    kills = 0
    calls = 0

    def kill_at_times(what: str, done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise Killed

    while True:
        try:
            found = leading_eigenpairs(matrix, 6, state, kill_at_times, **settings)
            break
        except Killed:
            kills += 1
    assert kills >= 2
    assert found.values.tobytes() == expected.values.tobytes()
    assert np.array_equal(found.vectors, expected.vectors)
    assert found.products == expected.products
    # What is finished is only read; what is damaged, or another graph's, is not believed.
    assert leading_eigenpairs(matrix, 6, state, pytest.fail, **settings).residual == found.residual
    state.write_bytes(state.read_bytes()[:-100])
    assert leading_eigenpairs(matrix, 6, state, **settings).values.tobytes() == (
        expected.values.tobytes()
    )
    other = walk_matrix(3001, 6)
    assert len(leading_eigenpairs(other, 6, state, **settings).vectors) == 3001


def test_an_early_end_says_how_far_it_got() -> None:
    matrix = walk_matrix(3000, 6)
    found = leading_eigenpairs(matrix, 6, tolerance=1e-12, most_restarts=2)
    assert 1e-12 < found.residual < 0.5
    residuals = np.linalg.norm(matrix @ found.vectors - found.vectors * found.values, axis=0)
    assert found.residual == pytest.approx(residuals.max())


@pytest.mark.parametrize("directed", ["symmetrize", "alternating"])
def test_decompose_uses_it_on_large_graphs(directed, tmp_path, monkeypatch, caplog) -> None:
    edges = torch.randint(1000, (2, 4000), generator=torch.Generator().manual_seed(0))
    exact = decompose(edges, 1000, 8, directed=directed)
    assert exact.residual == 0
    monkeypatch.setattr(decomposition, "LARGE_NODES", 500)
    keep = tmp_path / "0"
    found = decompose(edges, 1000, 8, None, directed, keep, silent)
    assert 0 < found.residual <= krylov.TOLERANCE * 1.1
    torch.testing.assert_close(found.values, exact.values, atol=1e-5, rtol=0)
    assert found.error == pytest.approx(exact.error, abs=1e-4)
    for side in ("vectors", "right_vectors"):
        ours, theirs = getattr(found, side), getattr(exact, side)
        if theirs is not None:  # the same up to signs: as projectors weighted by the values
            difference = (ours * found.values) @ ours.T - (theirs * exact.values) @ theirs.T
            assert float(difference.abs().max()) < 2e-3
    account = json.loads((tmp_path / "0.json").read_text())
    assert account["residual"] == found.residual and account["nodes"] == 1000
    assert "residuals of at most" in caplog.text
