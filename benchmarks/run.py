"""Run all benchmarks; write results/benchmarks.json and docs/performance.{md,png}.

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
SHORT = {
    "native": "fused",
    "reference": "plain PyTorch",
    "compiled": "torch.compile",
    "gps": "GPS",
}


def run_script(name: str, *arguments: str) -> dict[str, Any]:
    """Run another benchmark and read the JSON that it prints."""
    command = [sys.executable, str(Path(__file__).with_name(name)), "--json", *arguments]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output[output.index("{") :])


def measure(quick: bool, repeats: int) -> dict[str, Any]:
    found: dict[str, Any] = {"hardware": describe(), "steps": {}}
    for name, contestants in CASES.items():
        chosen = [one for one in contestants if not (quick and one == "compiled")]
        found["steps"][name] = steps.compete(name, chosen, repeats)
        steps.print_ratios(name, found["steps"][name]["ratios"])
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
        "| shape | network | step (s) | memory (MB) | training graphs/s | inference graphs/s |",
        "|---|---|---|---|---|---|",
    ]
    for case, result in found["steps"].items():
        for contestant, row in result["contestants"].items():
            lines.append(
                f"| {case} | {NAMES[contestant]} | {row['step_seconds']:.3f} | "
                f"{row['step_peak_mb']:,.0f} | {row['training_graphs_per_second']:,.1f} | "
                f"{row['inference_graphs_per_second']:,.1f} |"
            )
    lines += ["", "| shape | ratio | value |", "|---|---|---|"]
    for case, result in found["steps"].items():
        for what, value in result["ratios"].items():
            shown = f"{100 * value:.0f} %" if what.startswith("share") else f"{value:.1f}×"
            for contestant, name in SHORT.items():
                what = what.replace(contestant, name)
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
    """Plot step times, and how time and memory grow."""
    # Two rows, so that labels can be read on a phone.
    figure = plt.figure(figsize=(6.4, 6), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=[1.15, 1])
    axes = [figure.add_subplot(place) for place in (grid[0, :], grid[1, 0], grid[1, 1])]
    cases = list(found["steps"])
    colours = {"native": "#2a7f3f", "reference": "#9aa5ad", "compiled": "#c9a227", "gps": "#5b7db1"}
    labels = {
        "native": "GRASS, fused",
        "reference": "GRASS, plain PyTorch",
        "compiled": "GRASS, torch.compile",
        "gps": "GPS (PyG)",
    }
    fused = [found["steps"][case]["contestants"]["native"]["step_seconds"] for case in cases]
    for number, (contestant, colour) in enumerate(colours.items()):
        rows = [found["steps"][case]["contestants"].get(contestant) for case in cases]
        places = [i + (number - 1) * 0.22 for i, row in enumerate(rows) if row]
        if places:
            pairs = [
                (row["step_seconds"], own) for row, own in zip(rows, fused, strict=True) if row
            ]
            heights = [seconds / own for seconds, own in pairs]
            bars = axes[0].bar(places, heights, 0.22, color=colour, label=labels[contestant])
            texts = [f"{seconds:.2g} s" for seconds, _ in pairs]
            axes[0].bar_label(bars, texts, fontsize=8.5)
    axes[0].set_xticks(range(len(cases)), cases)
    axes[0].set_ylabel("relative to the fused step", fontsize=10)
    axes[0].set_title("Time of a training step", fontsize=11)
    axes[0].legend(fontsize=9, frameon=False, ncols=2, loc="upper left")
    axes[0].margins(y=0.36)
    size = [row["nodes"] + row["edges"] for row in found["growth"]["rows"]]
    for place, what, name, exponent in (
        (axes[1], "total_seconds", "Step (s)", "time_exponent"),
        (axes[2], "peak_mb", "Memory (MB)", "memory_exponent"),
    ):
        place.loglog(size, [row[what] for row in found["growth"]["rows"]], "o-", color="#2a7f3f")
        place.set_title(
            f"{name} grows as size$^{{{found['growth'][exponent]:.2f}}}$", fontsize=10.5
        )
        place.set_xlabel("nodes + edges of one graph", fontsize=10)
    for place in axes:
        place.spines[["top", "right"]].set_visible(False)
        place.tick_params(labelsize=9.5)
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
