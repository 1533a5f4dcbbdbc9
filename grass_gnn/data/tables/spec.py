"""Which columns of a table to use, how to split its rows, and tables that come with the package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from grass_gnn.errors import GrassError

SPLITS = ("train", "val", "test")
DEFAULT_SHARES = (0.8, 0.1, 0.1)
BAD_ROWS = ("skip", "fail")
SPLIT_KINDS = ("random", "stratified", "scaffold")
COMPUTED = "rdkit"
"""In place of a column: the descriptors that RDKit computes."""


@dataclass(frozen=True)
class TableSpec:
    """Columns, split and features of a table of molecules.

    The command line builds its options from these fields and takes their help from here.

    Args:
        targets: Columns to predict, separated by commas; not needed for bundled tables.
        smiles: Column of SMILES or InChI; found by its name by default.
        val: Table of validation rows, with the same columns.
        test: Table of test rows, with the same columns.
        split: How to split the rows: ``"random"`` (stratified if a class is rare),
            ``"stratified"``, ``"scaffold"``, or a column that contains train, val or test.
        shares: Fractions of the training, validation and test set.
        split_seed: Random seed of the split; by default that of the run. Runs with the same split
            share their validation rows, on which an ensemble can be calibrated.
        task: ``"regression"``, ``"binary"``, ``"classification"`` or ``"multilabel"``; inferred
            from the targets by default.
        features: Atom and bond features: ``"ogb"`` (those of OGB), ``"ogb-cip"`` (the same with R/S
            labels as chirality) or ``"zinc"`` (atom and bond types of the ZINC benchmark).
        descriptors: Numeric columns to pass to the head along with the graph; ``"rdkit"`` stands
            for RDKit's 2D descriptors, which are then computed.
        bad_rows: ``"skip"``: leave out rows that cannot be used and list them in
            ``skipped_rows.csv``; ``"fail"``: stop with an error.
        forest: Average the network with a forest and a Gaussian process on fingerprints and
            descriptors; False: predict with the network alone.
        baseline: Score a forest on the test rows even if it is not averaged with the network.
        from_scratch: Train without the pretrained model that comes with the package.
    """

    targets: tuple[str, ...] = ()
    smiles: str | None = None
    val: str | Path | None = None
    test: str | Path | None = None
    split: str = "random"
    shares: tuple[float, float, float] = DEFAULT_SHARES
    split_seed: int | None = None
    task: str | None = None
    features: str = "ogb-cip"
    descriptors: tuple[str, ...] = ()
    bad_rows: str = "skip"
    forest: bool = True
    baseline: bool = False
    from_scratch: bool = False

    def __post_init__(self) -> None:
        if self.bad_rows not in BAD_ROWS:
            raise GrassError(f"--bad-rows must be {' or '.join(BAD_ROWS)}, not {self.bad_rows!r}.")
        for name in ("targets", "descriptors", "shares"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @classmethod
    def of(cls, targets: TableSpec | str | Sequence[str], **fields: Any) -> TableSpec:
        """A spec from the names of the target columns and other fields, or a changed spec."""
        if isinstance(targets, TableSpec):
            return replace(targets, **fields)
        names = (targets,) if isinstance(targets, str) else tuple(targets)
        return cls(names, **fields)

    @property
    def split_column(self) -> str | None:
        """The column that contains the split of each row, if there is one."""
        return None if self.split in SPLIT_KINDS else self.split


def parse_shares(text: str) -> tuple[float, float, float]:
    """Parse fractions of training, validation and test set such as ``0.8,0.1,0.1``."""
    try:
        train, val, test = (float(part) for part in text.split(","))
        if min(train, val, test) <= 0:
            raise ValueError
    except ValueError:
        raise GrassError(
            f"--shares takes three numbers above zero, such as 0.8,0.1,0.1, not {text!r}."
        ) from None
    return train, val, test


# ``solubility.csv`` and ``well_known.csv`` hold measured aqueous solubilities (log10 of mol/L),
# collected by J. Huuskonen (J. Chem. Inf. Comput. Sci. 40, 773–777, 2000). They are taken from the
# files ``solubility.train.sdf`` and ``solubility.test.sdf`` of RDKit (BSD 3-clause, see
# ``data/solubility.LICENSE``); of molecules that differ only in their stereochemistry, which these
# files do not contain, the first is kept. The well-known molecules are not in ``solubility.csv``.
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
