"""Every file of a run folder replaced by a pipe, a device or a huge file: a sentence, at once."""

import ast
import contextlib
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

import grass_gnn
from grass_gnn import GrassError, load_model
from grass_gnn.api.fitting import fit_table
from grass_gnn.evaluation.run import evaluate_run
from grass_gnn.report.page import write_report
from grass_gnn.uncertainty.calibration import find_calibration
from grass_gnn.uncertainty.ensembles import Ensemble

pytest.importorskip("rdkit")

SMALL = {
    "training.epochs": 1,
    "model.dim": 8,
    "model.layers": 2,
    "evaluation.statistics_passes": 1,
    "evaluation.rewirings": 1,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on a table that was interrupted after its last checkpoint, and the table."""
    folder = tmp_path_factory.mktemp("run")
    rows = [f"{'C' * size}O,{size}" for size in range(1, 21)]
    (folder / "table.csv").write_text("\n".join(["smiles,size", *rows]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRASS_OPS", "reference")
        fit_table(folder / "table.csv", ["size"], folder / "run", settings=SMALL, forest=False)
        yield folder


def load(folder):
    model = load_model(folder / "run")
    _ = Ensemble([model], find_calibration([model])[0]).similarity


def resume(folder):
    fit_table(
        folder / "table.csv", ["size"], folder / "run", settings=SMALL, forest=False, resume=True
    )


def report(folder):
    write_report([folder / "run"], folder / "page.html")


def evaluate(folder):
    evaluate_run(folder / "run", rewirings=1)


def replace(path, kind):
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)  # sparse: takes no space


@pytest.fixture
def bounded():
    """Interrupt a test that waits for a pipe."""

    def interrupt(*_):
        raise TimeoutError("a file is being waited for")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# What reads which files; whatever else is in the folder is written only.
READERS = {
    load: ["config.json", "weights.safetensors", "similarity.safetensors"],
    resume: ["metrics.csv", "config.toml", "checkpoints/*.ckpt"],
    report: ["results.json", "metrics.csv", "config.toml", "test_predictions.csv", "splits.csv"],
    evaluate: ["data/*/manifest.json", "data/*/*.safetensors"],
}
CASES = [(reader, name, "pipe") for reader, names in READERS.items() for name in names]
CASES += [(load, name, kind) for name in READERS[load] for kind in ("device", "huge")]
CASES += [(resume, "metrics.csv", "huge"), (report, "results.json", "huge")]


@pytest.mark.parametrize(("reader", "name", "kind"), CASES)
def test_a_file_that_is_not_one_ends_in_a_sentence_or_is_ignored(
    trained, tmp_path, bounded, reader, name, kind
):
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder, copy_function=os.link)
    paths = list((folder / "run").glob(name))
    assert paths
    for path in paths:
        replace(path, kind)
    with contextlib.suppress(GrassError):
        reader(folder)


def test_a_resumed_run_does_not_write_through_links(trained, tmp_path):
    """A folder from somebody else must not overwrite files outside of it."""
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    (tmp_path / "precious").write_text("mine")
    for name in ("metrics.csv", "run.lock"):
        link = folder / "run" / name
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / "precious")
        with pytest.raises(GrassError):
            resume(folder)
        assert (tmp_path / "precious").read_text() == "mine"
        link.unlink()


# Modules that open files by other means than grass_gnn.files, and why they may.
OTHER_READERS = {
    "files.py": "the rule itself",
    "serve/app.py": "scripts and styles of the package",
    "ops/build.py": "the cache, which nobody else writes to",
    "encoding/eigen.py": "the cache",
    "data/packed/store.py": "checks for regular files; the data are mapped, not read",
    "report/run.py": "checks for a regular file; only the header is read",
    "training/record.py": "bytes that files.read_bytes has read",
    "api/estimators.py": "a folder of its own that it has just written",
    "experiments/runners.py": "a folder that its own process has just written",
    "data/tables/files.py": "tables, which may be pipes",
    "data/tables/formats.py": "sheets, whose sizes are checked before they are unpacked",
    "data/benchmarks/raw.py": "raw files of benchmarks",
    "data/benchmarks/downloads.py": "downloads of its own",
    "cli/demo.py": "predictions that it has just written",
    "hardware.py": "/proc",
    "data/tables/reading.py": "/proc",
}
OPENING = {"read_text", "read_bytes", "safe_open", "load_file"}


def opens_files(call):
    if "resources.files(" in ast.unparse(call.func):
        return False  # a file of the package
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if name in ("open", "fdopen"):
        modes = [a.value for a in call.args if isinstance(a, ast.Constant)]
        writes = any(isinstance(m, str) and re.fullmatch(r"[wxa]b?|rb\+", m) for m in modes)
        return not writes and not (isinstance(owner, ast.Name) and owner.id in ("os", "GridRecord"))
    if name == "load":
        return isinstance(owner, ast.Name) and owner.id in ("np", "torch")
    return (owner is not None and name in OPENING) or name in ("safe_open", "load_file")


def test_files_of_runs_are_opened_by_one_rule():
    """New code reads files with ``grass_gnn.files``, or says here why it does not."""
    package = Path(grass_gnn.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        if any(map(opens_files, calls)):
            found.add(path.relative_to(package).as_posix())
    assert found - OTHER_READERS.keys() == set()
