"""Tables of molecules that come with the package.

``solubility.csv`` and ``well_known.csv`` contain measured aqueous solubilities (log10 of mol/L),
collected by J. Huuskonen (J. Chem. Inf. Comput. Sci. 40, 773–777, 2000). They are taken from the
files ``solubility.train.sdf`` and ``solubility.test.sdf`` of RDKit (BSD 3-clause, see
``data/solubility.LICENSE``); among molecules that differ only in their stereochemistry, which these
files do not contain, the first is kept. The well-known molecules are not in ``solubility.csv``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from grass_gnn.data.tables.spec import TableSpec

_FOLDER = Path(str(resources.files("grass_gnn") / "data"))


@dataclass(frozen=True)
class BundledTable:
    """A table, and the column that is predicted by default."""

    path: Path
    target: str


BUNDLED = {
    "example": BundledTable(_FOLDER / "example.csv", "logP"),
    "solubility": BundledTable(_FOLDER / "solubility.csv", "logS"),
}
"""By the name that commands accept in place of a file."""

WELL_KNOWN = _FOLDER / "well_known.csv"
"""Eight well-known molecules, seven with their measured solubility."""


def find_table(source: str | Path, spec: TableSpec) -> tuple[Path, TableSpec]:
    """The file of a table, and what to read from it; ``source`` is a file or a bundled table."""
    found = BUNDLED.get(str(source))
    if found is None:
        return Path(source), spec
    return found.path, replace(spec, targets=spec.targets or (found.target,))
