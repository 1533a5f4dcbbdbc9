"""A preset of the paper applied to PyG graphs. Run: python examples/preset_on_a_batch.py"""

import torch
from torch_geometric.data import Batch, Data

from grass_gnn import GRASS, GRASSConfig


def ring(atom, size):
    """A ring of equal atoms with single bonds, in ZINC's numbering of atoms and bonds."""
    nodes = torch.arange(size)
    edges = torch.stack([nodes, nodes.roll(-1)])
    return Data(
        x=torch.full((size, 1), atom),
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
        edge_attr=torch.ones(2 * size, 1, dtype=torch.long),
    )


def main():
    torch.manual_seed(0)
    config = GRASSConfig.preset("zinc", **{"model.layers": 12})  # change any setting by name
    model = GRASS(config).eval()
    model.pooling.set_scales(23.2, 49.8, 2 * 6 * 23.2)  # training sets these from its graphs
    batch = Batch.from_data_list([ring(0, 5), ring(0, 6), ring(2, 7)])
    with torch.no_grad():
        first, second = model(batch), model(batch)  # encoded and rewired in each call
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
    for number, (a, b) in enumerate(zip(first, second, strict=True)):
        print(f"graph {number}: {a.item():+.4f} with one rewiring, {b.item():+.4f} with another")
    return first, second


if __name__ == "__main__":
    main()
