"""Graphs: read, checked, encoded, stored and batched."""

from grass_gnn._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "batch": (
            "GraphBatch",
            "InputGraphs",
            "batch_from_data",
            "rewire",
        ),
        "benchmarks.registry": (
            "BENCHMARKS",
            "Benchmark",
            "BenchmarkData",
            "benchmark",
            "found_locally",
            "load_benchmark",
        ),
        "benchmarks.sbm": (
            "generate_cluster",
            "generate_pattern",
        ),
        "benchmarks.statistics": (
            "DatasetStatistics",
            "dataset_statistics",
        ),
        "packed.dataset": (
            "PackedDataset",
            "PoolingStatistics",
            "pack",
            "pack_checked",
        ),
        "packed.loader": (
            "GraphLoader",
            "SampledLoader",
            "num_parts",
            "training_loader",
        ),
        "packed.prepare": (
            "Fingerprint",
            "PreparedData",
            "content_hash",
            "fingerprint",
            "open_prepared",
            "prepare",
            "prepare_benchmark",
        ),
    },
)
