"""Benchmarks and one's own graphs: read, checked, encoded, stored, batched."""

from grass_gnn.data.batch import GraphBatch, InputGraphs, rewire
from grass_gnn.data.benchmarks import (
    BENCHMARKS,
    Benchmark,
    BenchmarkData,
    benchmark,
    found_locally,
    load_benchmark,
)
from grass_gnn.data.fingerprint import Fingerprint, content_hash, fingerprint
from grass_gnn.data.loader import GraphLoader
from grass_gnn.data.packed import PackedDataset
from grass_gnn.data.packing import pack, pack_checked
from grass_gnn.data.prepare import open_prepared, prepare, prepare_benchmark
from grass_gnn.data.prepared import PreparedData
from grass_gnn.data.pyg import batch_from_data
from grass_gnn.data.sampling import SampledLoader, num_parts, training_loader
from grass_gnn.data.sbm import generate_cluster, generate_pattern
from grass_gnn.data.statistics import DatasetStatistics, PoolingStatistics, dataset_statistics

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "BenchmarkData",
    "DatasetStatistics",
    "Fingerprint",
    "GraphBatch",
    "GraphLoader",
    "InputGraphs",
    "PackedDataset",
    "PoolingStatistics",
    "PreparedData",
    "SampledLoader",
    "batch_from_data",
    "benchmark",
    "content_hash",
    "dataset_statistics",
    "fingerprint",
    "found_locally",
    "generate_cluster",
    "generate_pattern",
    "load_benchmark",
    "num_parts",
    "open_prepared",
    "pack",
    "pack_checked",
    "prepare",
    "prepare_benchmark",
    "rewire",
    "training_loader",
]
