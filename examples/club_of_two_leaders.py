"""Classify the nodes of a NetworkX graph from a few labels.

In Zachary's karate club of 34 members, predict the side of each member from those of some others.
Run: python examples/club_of_two_leaders.py
"""

import networkx
import torch

import grass_gnn
from grass_gnn.api.graphs import from_networkx


def main(epochs=60):
    data = from_networkx(networkx.karate_club_graph(), target="club")
    settings = {
        "encoding.kind": "rrwp",
        "model.layers": 4,
        "training.epochs": epochs,
        "training.learning_rate": 3e-3,
    }
    model = grass_gnn.fit(data, settings=settings, shares=(0.4, 0.1, 0.5))
    mean, std = model.predict([data])
    right = ((mean[:, 0] > 0.5) == (data.y > 0.5)).float().mean()
    for node in (0, 33, 8, 2):
        side = data.classes[int(mean[node, 0] > 0.5)]
        print(f"member {node}: {side} ({mean[node, 0]:.2f} ± {std[node, 0]:.2f})")
    print(f"{100 * right:.0f} % of all members are classified correctly")
    return float(right)


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
