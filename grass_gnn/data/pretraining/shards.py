"""From SMILES to packed graphs with scaled descriptors as targets, in pieces that fit in memory.

Molecules are read and described in other processes and written shard by shard; a shard that exists
is not computed again. The shards are then copied into one dataset per split, which training maps
into memory.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from grass_gnn.config import GRASSConfig
from grass_gnn.data.packed.dataset import (
    PackedDataset,
    from_tensors,
    pack_checked,
    pointers,
    shapes_of,
)
from grass_gnn.data.packed.prepare import Fingerprint, PreparedData, SplitSize, open_entry
from grass_gnn.data.packed.store import CacheEntry, DamagedError, TensorWriter, read_tensors
from grass_gnn.data.pretraining.lists import PretrainingReader
from grass_gnn.data.tables.molecules import Molecule
from grass_gnn.data.tables.reading import ReadingPool
from grass_gnn.errors import GrassError
from grass_gnn.files import read_json, read_text, write_json, write_text, write_whole
from grass_gnn.progress import report_progress

SHARD = 8192  # molecules of a list that are read, described and written at a time
MOLECULES = "molecules.smi"  # in the folder: all molecules; those for validation and test first
_PACKED, _SHARDS = "packed", "shards"
_SCALING = "scaling.json"
_SAMPLE = 20_000  # molecules that the scaling of targets is computed from
_TAIL = 1e-3  # share of the values at each end that the scaling does not look at
LIMIT = 6.0  # scaled targets are clipped to this many standard deviations


@dataclass(frozen=True)
class TargetScaling:
    """How descriptors become targets: clipped to common values, centred and scaled, clipped again.

    Columns that are constant among the molecules have no targets. Missing values stay missing.
    """

    names: list[str]
    low: list[float]
    high: list[float]
    centre: list[float]
    scale: list[float]
    columns: list[int]  # the columns of all descriptors that these are

    @classmethod
    def of(cls, values: Tensor, names: Sequence[str]) -> TargetScaling:
        """The scaling for the distribution of values [M, columns]."""
        quantiles = values.double().nanquantile(
            torch.tensor([_TAIL, 1 - _TAIL], dtype=torch.float64), dim=0
        )  # [2, columns]
        clipped = values.double().clamp(quantiles[0], quantiles[1])
        centre = clipped.nanmean(dim=0)
        scale = (clipped - centre).square().nanmean(dim=0).sqrt()
        # NaN where no value of the sample is known.
        columns = (scale > 1e-6 * (1 + centre.abs())).nonzero().flatten().tolist()
        if not columns:
            raise GrassError(
                "All descriptors of the molecules are constant: the list is too short."
            )
        low, high, mean, deviation = (
            part[columns].tolist() for part in (quantiles[0], quantiles[1], centre, scale)
        )
        return cls([names[column] for column in columns], low, high, mean, deviation, columns)

    def apply(self, values: Tensor) -> Tensor:
        """Targets [M, targets] from descriptors [M, columns]."""
        low, high, centre, scale = (
            torch.tensor(part) for part in (self.low, self.high, self.centre, self.scale)
        )
        chosen = values[:, self.columns].clamp(low, high)
        return ((chosen - centre) / scale).clamp(-LIMIT, LIMIT)


def write_shards(
    smiles: Sequence[str], reader: PretrainingReader, config: GRASSConfig, folder: Path
) -> list[Path]:
    """Read, describe and encode molecules shard by shard; shards that exist are kept.

    Args:
        smiles: The molecules.
        reader: How they are read; unreadable and excluded ones are left out.
        config: The encoding.
        folder: Folder of the run.
    """
    places = range(0, len(smiles), SHARD)
    paths = [folder / _SHARDS / f"{number:05}.safetensors" for number in range(len(places))]
    if (folder / _PACKED).exists() or all(path.exists() for path in paths):
        return paths
    (folder / _SHARDS).mkdir(parents=True, exist_ok=True)
    with ReadingPool(reader) as pool:
        for start, path in zip(places, paths, strict=True):
            if not path.exists():
                found = pool.read(smiles[start : start + SHARD])
                _write_shard(path, _distinct(_counted(found, start, len(smiles))), config)
            report_progress("Describing molecules", min(start + SHARD, len(smiles)), len(smiles))
    return paths


def _counted(found: Iterator[Molecule | str], done: int, total: int) -> Iterator[Molecule | str]:
    for number, molecule in enumerate(found, 1):
        if number % 256 == 0:
            report_progress("Describing molecules", done + number, total)
        yield molecule


def _distinct(found: Iterator[Molecule | str]) -> list[Molecule]:
    """The readable molecules of a shard, each of them once: small fragments repeat."""
    molecules: dict[str, Molecule] = {}
    for molecule in found:
        if not isinstance(molecule, str):
            molecules.setdefault(molecule.canonical, molecule)
    return list(molecules.values())


def _write_shard(path: Path, molecules: list[Molecule], config: GRASSConfig) -> None:
    if not molecules:
        raise GrassError("Many molecules of the list in a row cannot be used: is it of SMILES?")
    graphs = [
        molecule.checked()._replace(
            y=torch.from_numpy(molecule.descriptors)[None], descriptors=None
        )
        for molecule in molecules
    ]
    packed = pack_checked(graphs, config)
    tensors = packed.tensors | {"graph_ptr": packed.graph_ptr, "edge_ptr": packed.edge_ptr}
    # The list first: a shard that exists is complete.
    lines = "".join(f"{molecule.canonical}\n" for molecule in molecules)
    write_text(path.with_suffix(".smi"), lines)
    with write_whole(path) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary)


def scale_targets(paths: Sequence[Path], names: Sequence[str], folder: Path) -> TargetScaling:
    """The scaling of targets for the molecules of shards; kept in the folder once it is known."""
    kept = folder / _SCALING
    if not kept.exists():
        values = [read_tensors(path)["y"] for path in paths]
        every = max(1, sum(map(len, values)) // _SAMPLE)
        found = TargetScaling.of(torch.cat([part[::every] for part in values]), names)
        write_json(kept, asdict(found))
    return TargetScaling(**read_json(kept))


def pack_shards(
    paths: Sequence[Path],
    scaling: TargetScaling,
    config: GRASSConfig,
    folder: Path,
    held_out: int,
) -> PreparedData:
    """Copy shards into one dataset per split, and remove them.

    Args:
        paths: The shards.
        scaling: How descriptors become targets.
        config: The configuration that the data are for.
        folder: Folder of the run.
        held_out: Number of molecules for validation, and for testing; at most a tenth each.
    """
    started = time.perf_counter()
    entry = CacheEntry(folder, _PACKED)
    try:
        manifest: dict[str, Any] | None = entry.manifest()
    except DamagedError as problem:
        raise GrassError(f"The prepared data in {folder / _PACKED} {problem}.") from None
    if manifest is None:
        with entry.locked(), entry.building() as temporary:
            shards = [_Shard(path, config) for path in paths]
            total = sum(len(shard.packed) for shard in shards)
            held_out = max(1, min(held_out, total // 10))
            bounds = {
                "val": (0, held_out),
                "test": (held_out, 2 * held_out),
                "train": (2 * held_out, total),
            }
            if total < 3:
                raise GrassError(f"Pretraining needs at least three molecules, not {total}.")
            sizes = {}
            for split in ("train", "val", "test"):
                parts = list(_parts(shards, *bounds[split]))
                sizes[split] = _write_split(
                    temporary / f"{split}.safetensors", parts, scaling, config
                )
            write_text(folder / MOLECULES, "".join(shard.text for shard in shards))
            files = {split: f"{split}.safetensors" for split in sizes}
            entry.publish(
                temporary,
                {
                    "splits": files,
                    "fingerprint": Fingerprint(None, "", sizes, False).to_dict(),
                    "seconds": round(time.perf_counter() - started, 3),
                },
            )
        manifest = entry.manifest()
        assert manifest is not None
    shutil.rmtree(folder / _SHARDS, ignore_errors=True)
    # The files identify the data: they are the same whenever they are written again.
    manifest["fingerprint"]["hash"] = "-".join(
        digest[:8] for _, digest in manifest["files"].values()
    )
    return open_entry(entry, config, manifest, from_cache=True)


class _Shard:
    """A shard, mapped into memory."""

    def __init__(self, path: Path, config: GRASSConfig) -> None:
        self.packed = from_tensors(read_tensors(path), config)
        self.text = read_text(path.with_suffix(".smi"))


def _parts(shards: Sequence[_Shard], start: int, stop: int) -> Iterator[PackedDataset]:
    """The graphs ``start`` to ``stop - 1`` of all shards, as views."""
    first = 0
    for shard in shards:
        low, high = max(start - first, 0), min(stop - first, len(shard.packed))
        if low < high:
            yield shard.packed.part(low, high)
        first += len(shard.packed)


def _write_split(
    path: Path, parts: Sequence[PackedDataset], scaling: TargetScaling, config: GRASSConfig
) -> SplitSize:
    nodes = torch.cat([part.graph_ptr.diff() for part in parts])
    edges = torch.cat([part.edge_ptr.diff() for part in parts])
    with TensorWriter(path, shapes_of(nodes, edges, config, [])) as writer:
        for name, pointer in pointers(nodes, edges).items():
            writer.append(name, pointer)
        for part in parts:
            for name, tensor in part.tensors.items():
                writer.append(name, scaling.apply(tensor) if name == "y" else tensor)
    return SplitSize(len(nodes), float(nodes.double().mean()), float(edges.double().mean()))
