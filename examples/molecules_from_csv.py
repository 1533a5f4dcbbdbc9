"""From a CSV of molecules to predictions with error bars.

Run: python examples/molecules_from_csv.py
"""

import csv
import tempfile
from pathlib import Path

import grass_gnn
from grass_gnn.api.fitting import EXAMPLE
from grass_gnn.api.prediction import predict_table

NEW = ["CCOC(=O)c1ccccc1", "CCCCCCCCCCCC", "OCC(O)C(O)CO", "this is no molecule"]


def main(settings=None):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model = grass_gnn.fit(EXAMPLE, folder / "run", target="logP", settings=settings)
        (folder / "new.csv").write_text("\n".join(["smiles", *NEW]))
        predict_table([model], folder / "new.csv", folder / "out.csv", deterministic=True)
        with (folder / "out.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    for row in rows:
        value = f"{row['logP_pred']} ± {row['logP_std']} {row['warning']}"
        print(f"{row['smiles']:20} {row['error'] or value}")
    return rows


if __name__ == "__main__":
    main()
