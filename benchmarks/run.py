"""All benchmarks: prints the ratios, writes results/benchmarks.json and docs/performance.{md,png}.

python benchmarks/run.py            # about half an hour on two cores
python benchmarks/run.py --quick    # without the compiled reference and the million nodes
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import growth
import matplotlib
import steps

from grass_gnn.hardware import describe

matplotlib.use("Agg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
CASES = {
    "zinc": ("native", "reference", "compiled", "gps"),
    "pattern": ("native", "reference"),
    "pascalvoc-sp": ("native", "reference"),
    "roman-empire": ("native", "reference"),
}


NAMES = {
    "native": "GRASS, fused",
    "reference": "GRASS, plain PyTorch",
    "compiled": "GRASS, torch.compile",
    "gps": "GPS (PyG, 10 layers, width 64)",
}


def run_script(name: str, *arguments: str) -> dict[str, Any]:
    """The JSON that another benchmark prints."""
    command = [sys.executable, str(Path(__file__).with_name(name)), "--json", *arguments]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output[output.index("{") :])


def measure(quick: bool, repeats: int) -> dict[str, Any]:
    found: dict[str, Any] = {"hardware": describe(), "steps": {}}
    for name, contestants in CASES.items():
        results = {}
        for contestant in contestants:
            if quick and contestant == "compiled":
                continue
            results[contestant] = steps.run_contestant(name, contestant, repeats)
            print(name, contestant, f"{results[contestant]['step_seconds']:.3f} s", flush=True)
        found["steps"][name] = {"contestants": results, "ratios": steps.ratios(results)}
        for what, value in found["steps"][name]["ratios"].items():
            print(f"  {what:32} {value:8.2f}", flush=True)
    sizes = [10_000, 100_000] if quick else [10_000, 100_000, 1_000_000]
    found["growth"] = growth.run(sizes, 2)
    print("growth exponents", found["growth"]["time_exponent"], found["growth"]["memory_exponent"])
    found["loader"] = run_script("loader.py")
    found["rewiring"] = run_script("rewiring.py")
    print("loader", found["loader"], "\nrewiring", found["rewiring"])
    return found


def table(found: dict[str, Any]) -> str:
    """The results of the steps as Markdown."""
    lines = [
        "| shape | network | step (s) | peak memory (MB) | trains graphs/s | infers graphs/s |",
        "|---|---|---|---|---|---|",
    ]
    for case, result in found["steps"].items():
        for contestant, row in result["contestants"].items():
            lines.append(
                f"| {case} | {NAMES[contestant]} | {row['step_seconds']:.3f} | "
                f"{row['step_peak_mb']:,.0f} | {row['training_graphs_per_second']:,.1f} | "
                f"{row['inference_graphs_per_second']:,.1f} |"
            )
    lines += ["", "| shape | ratio | |", "|---|---|---|"]
    for case, result in found["steps"].items():
        for what, value in result["ratios"].items():
            shown = f"{100 * value:.0f} %" if what.startswith("share") else f"{value:.1f}×"
            lines.append(f"| {case} | {what} | {shown} |")
    lines += [
        "",
        "| nodes | edges | rewiring (s) | step (s) | peak memory (MB) |",
        "|---|---|---|---|---|",
    ]
    for row in found["growth"]["rows"]:
        lines.append(
            f"| {row['nodes']:,} | {row['edges']:,} | {row['rewiring_seconds']:.2f} | "
            f"{row['step_seconds']:.2f} | {row['peak_mb']:,.0f} |"
        )
    return "\n".join(lines)


def draw(found: dict[str, Any], path: Path) -> None:
    """Step times and growth, side by side."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    cases = list(found["steps"])
    colours = {"native": "#2a7f3f", "reference": "#9aa5ad", "compiled": "#c9a227", "gps": "#5b7db1"}
    labels = {
        "native": "fused",
        "reference": "plain PyTorch",
        "compiled": "torch.compile",
        "gps": "GPS",
    }
    width = 0.2
    for number, (contestant, colour) in enumerate(colours.items()):
        at = [
            i for i, case in enumerate(cases) if contestant in found["steps"][case]["contestants"]
        ]
        seconds = [found["steps"][cases[i]]["contestants"][contestant]["step_seconds"] for i in at]
        places = [i + (number - 1.5) * width for i in at]
        bars = left.bar(places, seconds, width, color=colour, label=labels[contestant])
        left.bar_label(bars, fmt="%.2g", fontsize=7)
    left.set_yscale("log")
    left.set_xticks(range(len(cases)), cases)
    left.set_ylabel("seconds a training step")
    left.legend(fontsize=8, frameon=False)
    rows = found["growth"]["rows"]
    size = [row["nodes"] + row["edges"] for row in rows]
    right.loglog(size, [row["total_seconds"] for row in rows], "o-", color="#2a7f3f")
    right.set_xlabel("nodes and edges of one graph")
    right.set_ylabel("seconds a step", color="#2a7f3f")
    memory = right.twinx()
    memory.loglog(size, [row["peak_mb"] for row in rows], "s--", color="#5b7db1")
    memory.set_ylabel("peak memory (MB)", color="#5b7db1")
    right.set_title(
        f"growth: time ∝ size^{found['growth']['time_exponent']:.2f}, "
        f"memory ∝ size^{found['growth']['memory_exponent']:.2f}",
        fontsize=9,
    )
    for axes in (left, right, memory):
        axes.spines["top"].set_visible(False)
    figure.savefig(path, dpi=120)


def write(found: dict[str, Any]) -> None:
    (ROOT / "results").mkdir(exist_ok=True)
    (ROOT / "results" / "benchmarks.json").write_text(json.dumps(found, indent=2) + "\n")
    draw(found, ROOT / "docs" / "performance.png")
    page = ROOT / "docs" / "performance.md"
    text = page.read_text()
    start, end = "<!-- measured -->\n", "<!-- end -->"
    before, rest = text.split(start)
    after = rest.split(end)[1]
    page.write_text(before + start + table(found) + "\n" + end + after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    write(measure(arguments.quick, arguments.repeats))


if __name__ == "__main__":
    main()
