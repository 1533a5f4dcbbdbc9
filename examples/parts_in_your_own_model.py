"""The parts of GRASS in your own PyG model: encodings, rewiring and attention.

Classifies random graphs by whether they contain a triangle.
Run: python examples/parts_in_your_own_model.py
"""

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import global_add_pool
from torch_geometric.transforms import Compose
from torch_geometric.utils import erdos_renyi_graph, to_dense_adj

from grass_gnn import AddDegree, AddRandomRegularEdges, AddRRWP, GRASSConv
from grass_gnn.nn import collect_statistics

STEPS, DIM = 8, 16


class MyModel(nn.Module):
    """Four GRASS layers over nodes and edges that start from their encodings."""

    def __init__(self):
        super().__init__()
        self.node_in = nn.Linear(STEPS + 2, DIM)
        self.edge_in = nn.Linear(2 * STEPS + 1, DIM)
        self.layers = nn.ModuleList(GRASSConv(DIM, residual_scale=0.4) for _ in range(4))
        self.out = nn.Linear(DIM, 2)

    def forward(self, data):
        x = self.node_in(torch.cat([data.rrwp, data.degree], dim=1))  # [N, d]
        added = data.added_edge_mask.unsqueeze(1).float()
        e = self.edge_in(torch.cat([data.edge_rrwp, added], dim=1))  # [E, d]
        edge_index = data.edge_index
        for layer in self.layers:
            x, e = layer(x, edge_index, e)
            edge_index = edge_index.flip(0)  # head and tail change roles
        return self.out(global_add_pool(x, data.batch) / 10)


def random_graph(transform):
    edge_index = erdos_renyi_graph(10, 0.15)
    adjacency = to_dense_adj(edge_index, max_num_nodes=10)[0]
    triangle = int((adjacency @ adjacency @ adjacency).trace() > 0)
    return transform(Data(edge_index=edge_index, y=triangle, num_nodes=10))


def main(epochs=15, graphs=400):
    torch.manual_seed(0)
    # Degrees and random walks are computed once; random edges are drawn every time.
    encode = Compose([AddDegree(), AddRRWP(STEPS)])
    rewire = AddRandomRegularEdges(2)
    dataset = [random_graph(encode) for _ in range(graphs)]
    train, test = dataset[: graphs // 2], dataset[graphs // 2 :]
    model = MyModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for batch in DataLoader(train, batch_size=50, shuffle=True):
            loss = nn.functional.cross_entropy(model(rewire(batch)), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    # From here on, predictions do not depend on the other graphs of a batch.
    with torch.no_grad(), collect_statistics(model):
        for batch in DataLoader(train, batch_size=50, shuffle=True):
            model(rewire(batch))
    correct = 0
    for batch in DataLoader(test, batch_size=20):
        correct += int((model(rewire(batch)).argmax(1) == batch.y).sum())
    accuracy = correct / len(test)
    share = sum(data.y for data in test) / len(test)
    print(f"test accuracy {accuracy:.2f} (majority class: {max(share, 1 - share):.2f})")
    return accuracy


if __name__ == "__main__":
    main()
