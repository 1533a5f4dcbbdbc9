"""Embeddings of the molecules of a table, for use in other models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from grass_gnn.api.options import PredictOptions
from grass_gnn.api.prediction import RowSummary, open_molecules, read_chunks, with_descriptors
from grass_gnn.config import check_names, with_fields
from grass_gnn.data.tables.molecules import Molecule, MoleculeReader
from grass_gnn.data.tables.reading import ReadingPool
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.trained import TrainedModel
from grass_gnn.files import write_whole
from grass_gnn.progress import report_progress, reporting
from grass_gnn.uncertainty.ensembles import molecule_schema


def embed_table(
    model: TrainedModel,
    source: str | Path,
    target: str | Path,
    options: PredictOptions | None = None,
    *,
    level: str = "graph",
    **fields: Any,
) -> RowSummary:
    """Write the embeddings of a table's molecules or atoms to a file.

    The file contains ``embedding`` [M, width], ``row`` [M] (from 0; unreadable rows have no
    embedding) and, for nodes, ``atom`` [M], the index of the atom in its SMILES. A ``.npz`` is a
    NumPy archive; a ``.parquet`` has one column per dimension.

    Args:
        model: The trained model.
        source: The table of molecules.
        target: The ``.npz`` or ``.parquet`` file to write.
        options: Rewirings, column of SMILES, ….
        level: ``"graph"`` for molecules, ``"node"`` for atoms.
        **fields: Further fields of :class:`PredictOptions`.
    """
    check_names(fields, PredictOptions)
    options = with_fields(options or PredictOptions(), fields)
    model = model if options.device is None else model.to(options.device)
    write = _writer(Path(target))
    schema = molecule_schema(model)
    if options.deterministic and level == "node":
        raise GrassError(
            "Deterministic embeddings renumber the atoms: they are available for whole molecules."
        )
    table, column, numbers = open_molecules(source, schema, options.smiles)
    reader = MoleculeReader(
        schema.features,
        canonical_order=options.deterministic,
        max_atoms=options.max_atoms,
        descriptors=schema.rdkit,
    )
    parts: dict[str, list[np.ndarray]] = {"embedding": [], "row": [], "atom": []}
    rows = failed = 0
    with reporting(options.progress), ReadingPool(reader, options.workers) as pool:
        for number, (chunk, found) in enumerate(read_chunks(table, column, pool)):
            usable: list[tuple[int, Molecule, list[float]]] = []
            for place, (row, molecule) in enumerate(zip(chunk, found, strict=True), rows):
                one = with_descriptors(row, molecule, numbers, schema.descriptors)
                if not isinstance(one, str):
                    usable.append((place, *one))
            rows += len(chunk)
            failed += len(chunk) - len(usable)
            if usable:
                graphs = [molecule.with_descriptors(values) for _, molecule, values in usable]
                seed = options.seed + (number << 20)
                x = model.embed(graphs, level, options.rewirings, seed, options.deterministic)
                sizes = [1 if level == "graph" else len(m.x) for _, m, _ in usable]
                parts["embedding"].append(x.numpy())
                parts["row"].append(np.repeat([place for place, _, _ in usable], sizes))
                parts["atom"].append(np.concatenate([np.arange(size) for size in sizes]))
            report_progress("Embedding", rows, 0)
    if not parts["embedding"]:
        raise GrassError(f"None of the {rows} rows of {source} is a molecule.")
    arrays = {name: np.concatenate(part) for name, part in parts.items()}
    if level == "graph":
        del arrays["atom"]
    with write_whole(target) as temporary:
        write(temporary, arrays)
    return RowSummary(rows, failed)


def _writer(target: Path) -> Callable[[Path, dict[str, np.ndarray]], None]:
    """The function that writes a file of this format."""
    if target.suffix == ".npz":
        return _write_npz
    if target.suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise GrassError(
                "Writing Parquet needs pyarrow: pip install 'grass-gnn[parquet]'."
            ) from None
        return _write_parquet
    raise GrassError(f"Embeddings are written to a .npz or .parquet file, not to {target}.")


def _write_npz(path: Path, arrays: dict[str, Any]) -> None:
    with path.open("wb") as file:  # given a name, NumPy would append .npz
        np.savez_compressed(file, **arrays)


def _write_parquet(path: Path, arrays: dict[str, np.ndarray]) -> None:
    import pyarrow
    from pyarrow import parquet

    columns = {name: array for name, array in arrays.items() if name != "embedding"}
    columns |= {f"e{k}": column for k, column in enumerate(arrays["embedding"].T)}
    parquet.write_table(pyarrow.table(columns), path)
