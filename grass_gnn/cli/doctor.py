"""``grass-gnn doctor``."""

from __future__ import annotations

from rich.table import Table

from grass_gnn.cli.common import examples, print_json, print_table
from grass_gnn.cli.options import Json

EXAMPLES = examples("grass-gnn doctor", "grass-gnn doctor --json")


def doctor(json: Json = False) -> None:
    """Show versions, devices, the compiled CPU kernel, and the datasets on this machine."""
    from grass_gnn.data.benchmarks.registry import BENCHMARKS, found_locally
    from grass_gnn.files import cache_folder
    from grass_gnn.hardware import describe
    from grass_gnn.ops.build import has_bfloat16

    facts = {
        **describe(),
        "fused CPU step": _fused_step(),
        "bf16-mixed on the CPU": "bfloat16 products (AVX512_BF16)"
        if has_bfloat16()
        else "layers in float32, because the processor has no AVX512_BF16",
        "cache": str(cache_folder()),
        "datasets here": [name for name in BENCHMARKS if found_locally(name)],
    }
    if json:
        print_json(facts)
        return
    table = Table("what", "found")
    for name, value in facts.items():
        shown = ", ".join(value) or "none" if isinstance(value, list) else str(value)
        table.add_row(name, shown)
    print_table(table)


def _fused_step() -> str:
    from grass_gnn.ops.build import BuildError, available, library

    try:
        return f"compiled, {library()._name}" if available() else "not in use"
    except BuildError as error:
        return f"not available: {error}"
