"""Molecules per second that ``predict`` reads, encodes and predicts with one rewiring.

    python benchmarks/predict.py --table molecules.csv        # 10,000 rows with a column smiles
    python benchmarks/predict.py                              # the example table, repeated

Two models: the default of ``train`` for 10,000 molecules, and the 49 layers of the ZINC preset,
both trained for a single epoch, since only their speed matters. The first 1,000 rows are a warm-up.
With ``--growth``, also the peak memory for ten times as many rows.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path

from grass_gnn import GRASSConfig, load_model
from grass_gnn.api.fitting import default_settings, fit_table
from grass_gnn.api.prediction import predict_table

ROWS = 10_000
ONCE = {"training.epochs": 1, "evaluation.statistics_passes": 1, "evaluation.rewirings": 1}
DEEP = {
    f"{section}.{name}": getattr(getattr(GRASSConfig.preset("zinc"), section), name)
    for section, name in (("model", "layers"), ("encoding", "steps"), ("rewiring", "degree"))
}
MODELS = {"default": (default_settings(ROWS, 23.0), 1000.0), "49 layers": (DEEP, 400.0)}


def main() -> None:
    """Print the measured and the required rates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, help="CSV with a column smiles")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)  # run, table, rows
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure[:2], int(arguments.measure[2]))))
        return
    with tempfile.TemporaryDirectory() as folder:
        smiles = read_smiles(arguments.table)
        table = write_table(Path(folder) / "table.csv", smiles, ROWS)
        few = write_table(Path(folder) / "few.csv", smiles, 1000)
        for name, (settings, wanted) in MODELS.items():
            run = Path(folder) / name.replace(" ", "-")
            fit_table(few, ["y"], run, smiles="smiles", settings={**settings, **ONCE})
            found = in_process(run, table, ROWS)
            verdict = "reached" if found["rate"] >= wanted else "not reached"
            print(f"{name}: {found['rate']:.0f} molecules/s (wanted: {wanted:.0f}, {verdict})")
            if arguments.growth:
                large = write_table(Path(folder) / "large.csv", smiles, 10 * ROWS)
                more = in_process(run, large, 10 * ROWS)
                print(
                    f"  peak memory {found['peak_mb']:.0f} MB for {ROWS:,} rows, "
                    f"{more['peak_mb']:.0f} MB for {10 * ROWS:,}"
                )


def in_process(run: Path, table: Path, rows: int) -> dict[str, float]:
    """Measure in a separate process, for its peak memory."""
    command = [sys.executable, __file__, "--measure", str(run), str(table), str(rows)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(run: str, table: str, rows: int) -> dict[str, float]:
    """Rows per second, and the peak memory of the process (without its readers)."""
    models = [load_model(run)]
    out = Path(run) / "out.csv"
    predict_table(models, Path(run).parent / "few.csv", out, rewirings=1)
    start = time.perf_counter()
    predict_table(models, table, out, rewirings=1)
    rate = rows / (time.perf_counter() - start)
    return {"rate": rate, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def read_smiles(table: Path | None) -> list[str]:
    """The molecules to predict."""
    path = table or resources.files("grass_gnn") / "data" / "example.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return [row["smiles"] for row in csv.DictReader(file)]


def write_table(path: Path, smiles: list[str], rows: int) -> Path:
    """Write a table with this many molecules, repeated as needed, and a made-up target."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", "y"])
        writer.writerows([smiles[i % len(smiles)], i % 7 + 0.5] for i in range(rows))
    return path


if __name__ == "__main__":
    main()
