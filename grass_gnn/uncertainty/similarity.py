"""Similarity of molecules to the training set, by fingerprints.

:class:`SimilarityReference` has the maximum Tanimoto similarity to the training set. Fingerprints
are Morgan fingerprints of radius 2 with 1,024 bits. At most 2,000 random training molecules are
kept, so the value is a lower bound of the similarity to the whole training set. A molecule is
outside the domain if it is less similar than 95 % of the training molecules are to the others. On
public tables, the errors of such molecules are 1.4 times those of others (at 99 %, where many
molecules are merely small, 1.1 times).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from grass_gnn.data.tables.molecules import FINGERPRINT_BITS
from grass_gnn.errors import GrassError, first_line
from grass_gnn.files import read_bytes, read_checked, write_checked

SIMILARITY = "similarity.safetensors"  # file of a run folder
_KEPT = 2000  # training molecules
_LARGEST_FILE = 64 << 20  # bytes
_UNLIKE = 0.05  # quantile of the similarities among training molecules
_FAMILIAR = 0.1  # share of rows like training molecules, from which on they are remarked on


@dataclass(frozen=True)
class SimilarityReference:
    """Fingerprints of training molecules."""

    bits: np.ndarray  # [molecules, bits] uint8
    threshold: float
    splits: dict[str, np.ndarray] = field(default_factory=dict)  # similarities of other splits [M]

    @classmethod
    def of(
        cls, fingerprints: np.ndarray, others: Mapping[str, np.ndarray] | None = None
    ) -> SimilarityReference:
        """A reference from the fingerprints of the training set [molecules, bits].

        Args:
            fingerprints: Fingerprints of the training set; of more than 2,000, some at random.
            others: Fingerprints of other splits by name, whose similarities are kept for the
                calibration.
        """
        chosen = np.random.default_rng(0).permutation(len(fingerprints))[:_KEPT]
        bits, threshold = fingerprints[np.sort(chosen)], 0.0
        if len(bits) > 1:
            own = _tanimoto(bits, bits)  # [molecules, molecules]
            np.fill_diagonal(own, 0.0)
            threshold = float(np.quantile(own.max(axis=1), _UNLIKE))
        found = cls(bits, threshold)
        splits = {name: found.nearest(other) for name, other in (others or {}).items()}
        return replace(found, splits=splits)

    def union(self, other: SimilarityReference) -> SimilarityReference:
        """The reference of two models that are averaged: the training molecules of either."""
        bits = np.unique(np.concatenate([self.bits, other.bits]), axis=0)
        return SimilarityReference(bits, min(self.threshold, other.threshold))

    def nearest(self, fingerprints: np.ndarray) -> np.ndarray:
        """The largest similarity of each molecule [M, bits] to the reference → [M]."""
        return _tanimoto(fingerprints, self.bits).max(axis=1)

    def save(self, folder: Path) -> str:
        """Write the reference into a run folder; the checksum goes into the model's card."""
        return write_checked(folder / SIMILARITY, self._bytes())

    def contradicts(self, folder: Path) -> bool:
        """Whether a run folder has another reference."""
        path = folder / SIMILARITY
        return path.is_file() and read_bytes(path, _LARGEST_FILE) != self._bytes()

    def _bytes(self) -> bytes:
        return save_tensors(
            {
                "bits": torch.from_numpy(np.packbits(self.bits, axis=1)),
                "threshold": torch.tensor([self.threshold]),
                **{name: torch.from_numpy(values) for name, values in self.splits.items()},
            }
        )

    @classmethod
    def load(cls, folder: Path, checksum: str) -> SimilarityReference:
        """Read the reference of a run folder.

        Raises:
            GrassError: The file is missing or damaged.
        """
        path = folder / SIMILARITY
        try:
            tensors = load_tensors(read_checked(path, _LARGEST_FILE, checksum))
            bits, threshold = tensors["bits"], float(tensors["threshold"].double())
        except GrassError:
            raise
        except (OSError, SafetensorError, KeyError, RuntimeError, ValueError, TypeError) as error:
            raise GrassError(f"The file {path} is damaged: {first_line(error)}.") from None
        if (
            bits.dtype != torch.uint8
            or bits.dim() != 2
            or 8 * bits.size(1) != FINGERPRINT_BITS
            or not len(bits)
        ):
            raise GrassError(f"The file {path} is damaged: it contains no fingerprints.")
        rest = [name for name in tensors if name not in ("bits", "threshold")]
        if any(tensors[name].dim() != 1 or not tensors[name].is_floating_point() for name in rest):
            raise GrassError(f"The file {path} is damaged: it contains no similarities.")
        splits = {name: tensors[name].numpy() for name in rest}
        return cls(np.unpackbits(bits.numpy(), axis=1), threshold, splits)


def count_familiar(similarity: np.ndarray) -> int:
    """How many molecules have the fingerprint of a training molecule; 0 if hardly any.

    Different molecules can have the same fingerprint, so up to a tenth of them may be chance.

    Args:
        similarity: Their largest similarity to the training set [M].
    """
    same = int((similarity > 1 - 1e-6).sum())
    return same if same > _FAMILIAR * len(similarity) else 0


def _tanimoto(queries: np.ndarray, references: np.ndarray) -> np.ndarray:
    """Tanimoto similarity: common bits over all bits [M, R]."""
    first, second = queries.astype(np.float32), references.astype(np.float32)
    common = first @ second.T
    either = first.sum(axis=1)[:, None] + second.sum(axis=1)[None, :] - common
    return common / np.maximum(either, 1.0)
