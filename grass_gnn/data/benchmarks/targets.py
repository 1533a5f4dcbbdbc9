"""Benchmarks of molecules: their atom features, and names for the targets, which their files lack.

:mod:`~grass_gnn.data.benchmarks.registry` has all benchmarks, but imports PyG; a prediction needs
only these names.
"""

from typing import NamedTuple


class MoleculeTargets(NamedTuple):
    """What a model needs to know to read SMILES and to name its predictions."""

    features: str
    targets: list[str]


MOLECULE_TARGETS = {
    # Penalised logP: logP − synthetic accessibility score − atoms by which the largest ring exceeds
    # six, each standardised.
    "zinc": MoleculeTargets("zinc", ["penalised_logP"]),
    "peptides-func": MoleculeTargets(
        "ogb",
        [
            "antifungal",
            "cell_cell_communication",
            "anticancer",
            "drug_delivery_vehicle",
            "antimicrobial",
            "antiviral",
            "antihypertensive",
            "antibacterial",
            "antiparasitic",
            "toxic",
        ],
    ),
}
