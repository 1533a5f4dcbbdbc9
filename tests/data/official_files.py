"""Tiny datasets in the raw format of the official ones, for datasets that are not available."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

SIZES = {"train": 5, "val": 3, "test": 2}


def ring(n: int) -> Tensor:
    """Both directions of a ring of n nodes [2, 2n]."""
    node = torch.arange(n)
    forward = torch.stack([node, (node + 1) % n])
    return torch.cat([forward, forward.flip(0)], dim=1)


def write_cifar10(root: Path) -> None:
    def graph(i: int) -> dict[str, Tensor]:
        n = 4 + i
        return {
            "x": torch.rand(n, 3),
            "pos": torch.rand(n, 2),
            "edge_index": ring(n),
            "edge_attr": torch.rand(2 * n),
            "y": torch.tensor([i % 10]),
        }

    raw = _raw(root / "CIFAR10")
    splits = tuple([graph(i) for i in range(size)] for size in SIZES.values())
    torch.save(splits, raw / "CIFAR10_v2.pt")


def write_coco_sp(root: Path) -> None:
    raw = _raw(root / "coco-sp")
    for split, size in SIZES.items():
        graphs = []
        for i in range(size):
            n = 5 + i
            labels = np.full(n, 90)  # the largest of COCO's numbers, which PyG makes 80
            graphs.append((torch.rand(n, 14).half(), torch.rand(2 * n, 2), ring(n), labels))
        with (raw / f"{split}.pickle").open("wb") as file:
            pickle.dump(graphs, file)


def write_peptides_struct(root: Path) -> None:
    raw = _raw(root / "peptides-struct")
    for split, size in SIZES.items():
        graphs = []
        for i in range(size):
            n = 3 + i
            atoms, bonds = torch.ones(n, 9).long(), torch.ones(2 * n, 3).long()
            graphs.append((atoms, bonds, ring(n), torch.randn(1, 11)))
        torch.save(graphs, raw / f"{split}.pt")


def write_roman_empire(root: Path, nodes: int = 12) -> None:
    raw = _raw(root / "roman_empire")
    part = np.arange(nodes) % 3
    np.savez(
        raw / "roman_empire.npz",
        node_features=np.random.default_rng(0).random((nodes, 300), dtype=np.float32),
        node_labels=np.arange(nodes) % 18,
        edges=ring(nodes)[:, :nodes].t().numpy(),
        train_masks=np.stack([(part + split) % 3 == 0 for split in range(10)]),
        val_masks=np.stack([(part + split) % 3 == 1 for split in range(10)]),
        test_masks=np.stack([(part + split) % 3 == 2 for split in range(10)]),
    )


WRITERS: dict[str, Callable[[Path], None]] = {
    "cifar10": write_cifar10,
    "coco-sp": write_coco_sp,
    "peptides-struct": write_peptides_struct,
    "roman-empire": write_roman_empire,
}


def _raw(folder: Path) -> Path:
    (folder / "raw").mkdir(parents=True)
    return folder / "raw"
