"""``grass-gnn datasets``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from grass_gnn.cli.common import (
    Command,
    Group,
    examples,
    out,
    parse_sizes,
    print_json,
    print_table,
    read_config,
)
from grass_gnn.cli.options import Generate, Json, RawFiles, settings_option

app = typer.Typer(
    cls=Group,
    help="List, download, prepare and measure the benchmark datasets.",
    no_args_is_help=False,
    invoke_without_command=True,
    rich_markup_mode="rich",
    epilog=examples(
        "grass-gnn datasets",
        "grass-gnn datasets download minesweeper",
        "grass-gnn datasets prepare zinc --data folder/zinc",
        "grass-gnn datasets stats peptides-func --data folder/peptides_func --sample 500",
        "grass-gnn datasets fingerprint cluster --generate 100,10,10",
    ),
)

Name = Annotated[str, typer.Argument(help="Name of a dataset.")]


@app.callback()
def datasets(context: typer.Context) -> None:
    """List the datasets unless a subcommand is given."""
    if context.invoked_subcommand is None:
        list_datasets()


@app.command("list", cls=Command, epilog=examples("grass-gnn datasets list --json"))
def list_datasets(json: Json = False) -> None:
    """List the datasets, their sizes, and which are on this machine."""
    from grass_gnn.data.benchmarks.registry import BENCHMARKS, found_locally

    rows = [
        {
            "name": name,
            "task": _task(name),
            "graphs": sum(entry.official.graphs) if not entry.single_graph else 1,
            "mean_nodes": entry.official.mean_nodes,
            "mean_edges": entry.official.mean_edges,
            "license": entry.license,
            "notes": entry.notes,
            "here": found_locally(name),
        }
        for name, entry in BENCHMARKS.items()
    ]
    if json:
        print_json(rows)
        return
    table = Table("dataset", "task", "graphs", "mean nodes", "mean edges", "here")
    for row in rows:
        here = "yes" if row["here"] else "no"
        counts = (f"{row['graphs']:,}", f"{row['mean_nodes']:,}", f"{row['mean_edges']:,}")
        table.add_row(str(row["name"]), str(row["task"]), *counts, here)
    print_table(table)


@app.command(cls=Command, epilog=examples("grass-gnn datasets download minesweeper"))
def download(name: Name, json: Json = False) -> None:
    """Download the raw files of a dataset; no other command downloads anything.

    Interrupted downloads are resumed. Files are verified against the dataset's SHA-256 checksums if
    these are known; sources.json, next to the files, records the checksums in any case.
    """
    from grass_gnn.data.benchmarks.registry import benchmark
    from grass_gnn.files import read_json

    folder = benchmark(name).raw.download()
    sums = read_json(folder / "sources.json")
    if json:
        print_json({"name": name, "folder": str(folder), "sha256": sums})
        return
    out.print(f"{name} is in {folder}")
    for url, checksum in sums.items():
        out.print(f"  {checksum}  {url}", soft_wrap=True)


def _task(name: str) -> str:
    task = read_config(name, []).task
    return f"{task.level} {task.kind}, {task.metric}"


@app.command(cls=Command, epilog=examples("grass-gnn datasets prepare zinc --data folder/zinc"))
def prepare(
    name: Name,
    data: RawFiles = None,
    generate: Generate = None,
    settings: Annotated[list[str] | None, settings_option("Change a setting.")] = None,
    seed: Annotated[
        int, typer.Option(help="Random seed of generated graphs.", min=0, metavar="N")
    ] = 0,
    json: Json = False,
) -> None:
    """Read, check and encode a dataset, and cache it for training."""
    from grass_gnn.data.packed.prepare import prepare_benchmark

    config = read_config(name, settings or [])
    prepared = prepare_benchmark(config, data, parse_sizes(generate), seed)
    facts = {
        "name": name,
        "origin": prepared.origin,
        "seconds": prepared.seconds,
        "bytes": prepared.bytes,
        "from_cache": prepared.from_cache,
        "folder": str(prepared.folder),
        "fingerprint": prepared.fingerprint.to_dict(),
    }
    if json:
        print_json(facts)
        return
    size, found = f"{prepared.bytes / 1e6:.1f} MB", "cached" if prepared.from_cache else "written"
    out.print(
        f"{name}: {size}, prepared in {prepared.seconds:.1f} s ({found} in {prepared.folder})"
    )


@app.command(
    cls=Command, epilog=examples("grass-gnn datasets fingerprint cluster --generate 100,10,10")
)
def fingerprint(
    name: Name, data: RawFiles = None, generate: Generate = None, json: Json = False
) -> None:
    """Show the content hash and the sizes of a dataset, and whether it is the official one."""
    from grass_gnn.data.packed.prepare import prepare_benchmark

    config = read_config(name, [])
    prepared = prepare_benchmark(config, data, parse_sizes(generate))
    found = prepared.fingerprint
    if json:
        print_json(found.to_dict())
        return
    out.print(f"{name}: hash {found.hash}, {'official' if found.official else 'not official'}")
    for split, size in found.splits.items():
        out.print(
            f"  {split}: {size.graphs:,} graphs, {size.mean_nodes:.2f} nodes, "
            f"{size.mean_edges:.2f} edges"
        )
    for difference in found.differences:
        out.print(f"  [yellow]{difference}[/]")


@app.command(
    cls=Command,
    epilog=examples(
        "grass-gnn datasets stats peptides-func --data folder/peptides_func --sample 500"
    ),
)
def stats(
    name: Name,
    data: RawFiles = None,
    generate: Generate = None,
    sample: Annotated[
        int | None,
        typer.Option(
            help="Number of graphs whose shortest paths are measured; all by default.",
            min=1,
            metavar="N",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Compute a row of the paper's dataset tables: sizes, shortest paths and diameters."""
    from grass_gnn.data.benchmarks.registry import benchmark, load_benchmark
    from grass_gnn.data.benchmarks.statistics import dataset_statistics

    benchmark(name)
    loaded = load_benchmark(name, data, generate=parse_sizes(generate))
    found = dataset_statistics(loaded.splits, sample=sample)
    if json:
        print_json(vars(found))
        return
    table = Table(
        "dataset", "graphs", "avg. nodes", "avg. edges", "avg. shortest path", "avg. diameter"
    )
    table.add_row(
        name,
        f"{found.graphs:,}",
        f"{found.mean_nodes:.2f}",
        f"{found.mean_edges:.2f}",
        *(
            "-" if v is None else f"{v[0]:.2f} ± {v[1]:.2f}"
            for v in (found.shortest_path, found.diameter)
        ),
    )
    print_table(table)
