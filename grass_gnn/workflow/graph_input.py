"""Lists of molecules or graphs in any of the forms that people have them in."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any

from torch_geometric.data import Data

from grass_gnn.config import InputConfig
from grass_gnn.data.molecules import MoleculeReader, UnreadableMolecule
from grass_gnn.data.vocabulary import FEATURES
from grass_gnn.workflow.convert import from_networkx
from grass_gnn.workflow.inference import infer_input


@dataclass(frozen=True)
class GraphReader:
    """Reads SMILES, RDKit molecules, NetworkX graphs and PyG graphs.

    Args:
        features: Vocabulary of molecules, ``"ogb"`` or ``"zinc"``.
        node_features: Attributes of NetworkX nodes that are numbers.
        edge_features: Attributes of NetworkX edges that are numbers.
    """

    features: str = "ogb"
    node_features: tuple[str, ...] = ()
    edge_features: tuple[str, ...] = ()

    def read(self, items: Iterable[Any]) -> list[Data]:
        """The graphs; what the caller has stays as it is.

        Raises:
            ValueError: One cannot be read; the message names its place.
        """
        if isinstance(items, (str, bytes)):
            raise ValueError("X is a list of molecules or graphs, not a single text.")
        found = []
        for number, item in enumerate(items):
            try:
                found.append(self._read(item))
            except UnreadableMolecule as error:
                raise ValueError(f"X[{number}] cannot be read: {error}.") from None
            except TypeError as error:
                raise ValueError(f"X[{number}] {error}") from None
        if not found:
            raise ValueError("X is empty.")
        return found

    def _read(self, item: Any) -> Data:
        if isinstance(item, Data):
            return copy(item)
        if isinstance(item, str):
            # Atoms in canonical order, so that all ways to write a molecule give one prediction.
            return MoleculeReader(self.features, canonical_order=True)(item).data
        if _is_molecule(item):
            from rdkit.Chem import MolToSmiles

            return self._read(MolToSmiles(item))
        if hasattr(item, "nodes") and hasattr(item, "is_directed"):
            return from_networkx(item, None, self.node_features, self.edge_features)
        raise TypeError(
            f"is a {type(item).__name__}, not a SMILES text, an RDKit molecule, "
            "a NetworkX or a PyG graph."
        )

    def input_of(self, items: Iterable[Any], graphs: list[Data]) -> InputConfig:
        """What graphs come with: of molecules their whole vocabulary, of others what is seen."""
        if all(_is_molecule(item) for item in items):
            return FEATURES[self.features]
        return infer_input(graphs)


def _is_molecule(item: Any) -> bool:
    return isinstance(item, str) or type(item).__module__.startswith("rdkit.")
