"""Link prediction, and node embeddings as input of a scikit-learn model.

Run: python examples/links_and_embeddings.py
"""

import networkx
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from grass_gnn.api.graphs import from_networkx
from grass_gnn.api.links import fit_links, link_question, predict_links

SIZE = 15  # members of each of two groups


def main(epochs=20):
    graph = networkx.stochastic_block_model([SIZE, SIZE], [[0.7, 0.04], [0.04, 0.7]], seed=1)
    data = from_networkx(graph)
    settings = {"model.layers": 4, "training.epochs": epochs, "training.learning_rate": 2e-3}
    model = fit_links(data, settings=settings)
    pairs = torch.tensor(list(networkx.non_edges(graph))).t()  # [2, M]
    mean, _ = predict_links(model, data, pairs, rewirings=4)
    within = (pairs[0] < SIZE) == (pairs[1] < SIZE)
    inside, across = mean[within].mean().item(), mean[~within].mean().item()
    print(f"unconnected pairs: {inside:.2f} within a group, {across:.2f} across groups")

    nothing_asked = link_question(data, torch.empty(2, 0, dtype=torch.int64))
    x = model.embed([nothing_asked], level="node").numpy()  # [n, d]
    groups = [int(node >= SIZE) for node in graph]
    accuracy = cross_val_score(LogisticRegression(max_iter=1000), x, groups).mean()
    print(f"accuracy of groups predicted from node embeddings: {100 * accuracy:.0f} %")
    return inside, across, accuracy


if __name__ == "__main__":
    main()
