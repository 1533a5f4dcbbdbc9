"""``python -m grass_gnn`` is ``grass-gnn``."""

from grass_gnn.cli import run

if __name__ == "__main__":
    run()
