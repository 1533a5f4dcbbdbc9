"""Training on tables: tasks are inferred, splits kept, every row accounted for."""

import json
import math
from dataclasses import replace

import pytest
from small_tables import TINY, read_csv, some_smiles, write_csv

from grass_gnn import GRASSConfig, GrassError, load_model
from grass_gnn.api.fitting import EXAMPLE, choose_table_config, default_settings, fit_table
from grass_gnn.api.prediction import predict_table
from grass_gnn.cli import main
from grass_gnn.data.packed.prepare import prepare
from grass_gnn.data.tables.dataset import read_tables
from grass_gnn.data.tables.parsing import parse
from grass_gnn.data.tables.spec import BUNDLED, TableSpec

SET = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
SET += ["--no-baseline"]


def test_run_folder_is_self_contained(run, molecules):
    names = {path.name for path in run.iterdir()}
    assert names >= {"config.json", "weights.safetensors", "splits.csv", "similarity.safetensors"}
    rows = read_csv(run / "splits.csv")
    assert len(rows) == 80 and [row["line"] for row in rows] == [str(n) for n in range(2, 82)]
    assert {row["split"] for row in rows} == {"train", "val", "test"}
    results = json.loads((run / "results.json").read_text())
    for name in ("mae", "rmse", "r2"):
        value, (low, high) = results["test"]["metrics"][name]
        assert low <= value <= high
    assert "official" not in results


def test_evaluate_uses_the_data_kept_in_the_run(run, capsys):
    expected = json.loads((run / "results.json").read_text())["test"]["mean"]
    assert main(["evaluate", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["test"]
    assert found["mean"] == pytest.approx(expected, rel=1e-6)
    assert main(["evaluate", str(run), "--rewirings", "16"]) == 0
    assert "averaged" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "kind", "columns"),
    [
        ("size", "regression", ["size_pred", "size_std"]),
        ("large", "binary", ["large_prob", "large_std"]),
        ("kind", "classification", ["kind_pred", "kind_prob_a", "kind_std_a", "kind_prob_c"]),
        ("size,large", "regression", ["size_pred", "large_pred"]),
    ],
)
def test_every_task_trains_and_predicts(molecules, tmp_path, capsys, target, kind, columns):
    out, table = str(tmp_path / "run"), str(tmp_path / "out.csv")
    assert main(["train", str(molecules), "--target", target, "--out", out, *SET]) == 0
    said = capsys.readouterr().err
    assert f"Task: {kind}" in said
    assert main(["predict", out, str(molecules), "-o", table, "--rewirings", "2"]) == 0
    rows = read_csv(tmp_path / "out.csv")
    assert len(rows) == 80 and set(columns) <= set(rows[0])
    if kind == "classification":
        for row in rows:
            shares = {name: float(row[f"kind_prob_{name}"]) for name in "abc"}
            assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
            assert row["kind_pred"] == max(shares, key=shares.get)


def test_missing_labels_are_masked(tmp_path):
    rows = [
        [smiles, ["0", "1", ""][number % 3], ["1", "", "0"][number % 3]]
        for number, smiles in enumerate(some_smiles(40))
    ]
    path = write_csv(tmp_path / "labels.tsv", ["SMILES", "a", "b"], rows, delimiter="\t")
    run = fit_table(path, ["a", "b"], tmp_path / "run", settings=TINY)
    assert run.model.config.task.kind == "multilabel" and run.model.config.task.missing
    assert set(run.results["test"]["metrics"]) == {"ap", "auc", "accuracy", "f1"}
    predict_table([load_model(tmp_path / "run")], path, tmp_path / "out.csv", rewirings=1)
    assert all(0 <= float(row["b_prob"]) <= 1 for row in read_csv(tmp_path / "out.csv"))


def test_regression_targets_of_different_units_are_scaled_apart(tmp_path):
    rows = [[s, n, 1e6 * n + 5e7] for n, s in enumerate(some_smiles(40))]
    path = write_csv(tmp_path / "two.csv", ["smiles", "a", "b"], rows)
    task = fit_table(path, ["a", "b"], tmp_path / "run", settings=TINY).model.config.task
    assert task.target_scale[1] == pytest.approx(1e6 * task.target_scale[0], rel=1e-9)
    assert task.target_shift[1] == pytest.approx(1e6 * task.target_shift[0] + 5e7, rel=1e-9)


def test_bad_rows_are_listed_or_fatal(molecules, tmp_path, capsys):
    bad = tmp_path / "bad.csv"
    text = molecules.read_text()
    bad.write_text(text + "x,C(,1,1,a\ny,CC,1;5,0,b\nz,CC,,0,b\nw,,2,0,b\n")
    out = tmp_path / "run"
    arguments = ["train", str(bad), "--target", "size", "--out", str(out), *SET]
    assert main([*arguments, "--bad-rows", "fail"]) == 1
    assert "line 82 of bad.csv" in capsys.readouterr().err
    assert main(arguments) == 0
    said = capsys.readouterr().err
    assert "Skipped 4 unusable rows" in said
    rows = read_csv(out / "skipped_rows.csv")
    assert [row["line"] for row in rows] == ["82", "83", "84", "85"]
    reasons = [row["reason"] for row in rows]
    assert "not valid" in reasons[0] and "'1;5'" in reasons[1] and "no target" in reasons[2]


def test_splits_by_column_files_and_scaffold(molecules, tmp_path):
    parts = ["train", "Valid", "test", "train"]
    rows = [[s, n, parts[n % 4]] for n, s in enumerate(some_smiles(40))]
    rows.append(["CCCC", 1, "nowhere"])
    path = write_csv(tmp_path / "split.csv", ["smiles", "y", "set"], rows)
    data = read_tables(path, TableSpec(["y"], split="set"))
    assert [len(graphs) for graphs in data.splits.values()] == [20, 10, 10]
    assert "none of train" in data.skipped[0].problem
    for name, first in (("train", 0), ("val", 60), ("test", 70)):
        part = read_csv(molecules)[first : {"train": 60, "val": 70, "test": 80}[name]]
        write_csv(tmp_path / f"{name}.csv", list(part[0]), [list(row.values()) for row in part])
    files = {name: tmp_path / f"{name}.csv" for name in ("val", "test")}
    data = read_tables(tmp_path / "train.csv", TableSpec(["size"], **files))
    assert [len(graphs) for graphs in data.splits.values()] == [60, 10, 10]
    data = read_tables(tmp_path / "train.csv", TableSpec(["size"], test=files["test"]))
    assert len(data.splits["test"]) == 10 and len(data.splits["val"]) == 7
    rings = [["C1CCCCC1" + "C" * n, n] for n in range(20)]
    rings += [["c1ccncc1" + "O" * n, n] for n in range(1, 3)] + [
        ["C1CC1" + "N" * n, n] for n in (1, 2)
    ]
    path = write_csv(tmp_path / "rings.csv", ["smiles", "y"], rings)
    data = read_tables(path, TableSpec(["y"], split="scaffold"))
    assert {row.split for row in data.rows[:20]} == {"train"}
    assert {row.split for row in data.rows[20:]} == {"val", "test"}


def test_duplicates_across_splits_are_reported(tmp_path):
    rows = [[s, n, "train"] for n, s in enumerate(some_smiles(20))]
    rows += [["OCC", 1, "train"], ["CCO", 1, "test"], ["CCN", 2, "val"]]
    path = write_csv(tmp_path / "twice.csv", ["smiles", "y", "split"], rows)
    data = read_tables(path, TableSpec(["y"], split="split"))
    assert [name for name, _ in data.shared] == ["CCO"]
    assert any(
        "more than one split" in sentence and "line 22" in sentence for sentence in data.summary
    )


def test_files_of_one_name_are_told_apart_and_each_split_is_named_once(tmp_path):
    smiles = some_smiles(20)
    for folder, own in (("a", ["CCO", "OCC", "C(C)O", *smiles[:12]]), ("b", ["CCO", *smiles[12:]])):
        (tmp_path / folder).mkdir()
        rows = [[text, n] for n, text in enumerate(own)]
        write_csv(tmp_path / folder / "mols.csv", ["smiles", "y"], rows)
    main, test = tmp_path / "a" / "mols.csv", tmp_path / "b" / "mols.csv"
    data = read_tables(main, TableSpec(["y"], test=test, split="scaffold"), workers=0)
    assert {row.file for row in data.rows} == {str(main), str(test)}
    (told,) = [sentence for sentence in data.summary if "more than one split" in sentence]
    assert told.count("line") == 2 and f"line 2 of {test} (test)" in told


def test_descriptors_reach_the_head(tmp_path):
    rows = [[s, n % 7, n % 7 + 0.5] for n, s in enumerate(some_smiles(60))]
    path = write_csv(tmp_path / "with.csv", ["smiles", "ph", "y"], rows)
    settings = TINY | {"training.epochs": 40, "training.learning_rate": 1e-2}
    run = fit_table(path, ["y"], tmp_path / "run", descriptors=["ph"], settings=settings)
    value, _ = run.results["test"]["metrics"]["mae"]
    assert value < 0.8  # the molecule says nothing about y, the descriptor everything
    new = write_csv(tmp_path / "new.csv", ["smiles", "ph"], [["CCO", 0], ["CCO", 6], ["CCO", ""]])
    predict_table([load_model(tmp_path / "run")], new, tmp_path / "out.csv")
    low, high, none = read_csv(tmp_path / "out.csv")
    assert float(high["y_pred"]) - float(low["y_pred"]) > 3
    assert none["error"] == "the descriptor ph is missing"


def test_early_stopping_keeps_the_best_weights_and_resumes(molecules, tmp_path):
    settings = TINY | {
        "training.patience": 2,
        "training.epochs": 60,
        "training.learning_rate": 0.05,
    }
    first = fit_table(molecules, ["size"], tmp_path / "run", settings=settings)
    training = first.results["training"]
    assert training["epochs"] == training["best_epoch"] + 2 < 60
    before = (tmp_path / "run" / "weights.safetensors").read_bytes()
    fit_table(molecules, ["size"], tmp_path / "run", settings=settings, resume=True)
    assert (tmp_path / "run" / "weights.safetensors").read_bytes() == before


def test_a_refused_resumption_leaves_the_run_as_it_was(molecules, tmp_path):
    out = tmp_path / "run"
    options = {"settings": TINY, "forest": False}
    fit_table(molecules, ["size"], out, **options)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    rows = [["C" * (1 + n % 9) + "O", n / 7, n % 2] for n in range(80)]
    other = write_csv(tmp_path / "other.csv", ["smiles", "size", "kind"], rows)
    edited = [["C" + row["smiles"], row["size"], row["kind"]] for row in read_csv(molecules)]
    edited = write_csv(tmp_path / "edited.csv", ["smiles", "size", "kind"], edited)
    for table, targets, more in (
        (other, ["size"], {}),
        (edited, ["size"], {}),
        (molecules, ["size"], {"split_seed": 3}),
        (molecules, ["kind"], {}),
    ):
        with pytest.raises(GrassError, match="not those of the run"):
            fit_table(table, targets, out, resume=True, **options, **more)
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    fit_table(molecules, ["size"], out, resume=True, **options)


def test_parquet_and_zinc_features(molecules, tmp_path):
    pytest.importorskip("pyarrow")
    import pandas

    frame = pandas.DataFrame(read_csv(molecules)).astype({"size": float})
    frame.loc[3, "size"] = math.nan
    frame.to_parquet(tmp_path / "molecules.parquet")
    path = tmp_path / "molecules.parquet"
    run = fit_table(path, ["size"], tmp_path / "run", features="zinc", settings=TINY)
    assert run.model.config.input.nodes.sizes == [28]
    summary = predict_table([load_model(tmp_path / "run")], path, tmp_path / "out.csv")
    assert summary.rows == 80
    (tmp_path / "no.parquet").write_text("nothing")
    with pytest.raises(GrassError, match=r"no\.parquet"):
        read_tables(tmp_path / "no.parquet", TableSpec(["size"]))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "sise"], "did you mean 'size'"),
        ([], "--target"),
        (["--target", "size", "--smiles", "smile"], "did you mean 'smiles'"),
        (["--target", "id", "--task", "regression"], "rows cannot be used"),
        (["--target", "size", "--task", "guess"], "--task"),
        (["--target", "size", "--shares", "1,2"], "--shares"),
        (["--target", "size", "--features", "mine"], "ogb, zinc"),
        (["--target", "size", "--val", "nowhere.csv"], "nowhere.csv"),
        (["--target", "size", "--set", "model.layer=1"], "did you mean"),
        (["--target", "kind,size"], "'kind' contains text"),
    ],
)
def test_errors_are_one_sentence(molecules, tmp_path, capsys, arguments, words):
    assert main(["train", str(molecules), *arguments, "--out", str(tmp_path / "run")]) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert words in error and "Traceback" not in error


def test_defaults_follow_the_size_of_the_data():
    small, large = default_settings(100, 20), default_settings(100_000, 20)
    assert small["model.layers"] < large["model.layers"]
    assert small["training.epochs"] > large["training.epochs"]
    assert default_settings(100, 150)["encoding.kind"] == "decomposed-rrwp"
    for count in (1, 10, 10**3, 10**6):
        GRASSConfig().override(default_settings(count, 20))


def test_loss_and_metric_of_a_configuration_are_kept_if_it_is_for_the_same_task(
    run, molecules, tmp_path
):
    size, large = (read_tables(molecules, TableSpec([name])) for name in ("size", "large"))
    usual = choose_table_config(size)
    file = tmp_path / "config.toml"
    file.write_text('[task]\nloss = "l1+tail"\n')
    chosen = choose_table_config(size, GRASSConfig.from_toml(file))
    assert chosen.task == usual.task.model_copy(update={"loss": "l1+tail"})
    settings = {"task.loss": "mse"}
    assert choose_table_config(size, GRASSConfig.from_toml(file), settings).task.loss == "mse"

    # Of the configuration of an earlier run, the units of its targets are not kept.
    whole = GRASSConfig.from_toml(run / "config.toml")
    other = whole.override({"task.metric": "rmse", "task.target_scale": [7.0], "task.outputs": 1})
    chosen = choose_table_config(size, other)
    assert chosen.task == usual.task.model_copy(update={"metric": "rmse"})

    file.write_text('[task]\nkind = "binary"\nloss = "weighted-bce"\nmetric = "ap"\n')
    task = choose_table_config(large, GRASSConfig.from_toml(file)).task
    assert (task.loss, task.metric) == ("weighted-bce", "ap")
    for table, config in ((size, GRASSConfig.from_toml(file)), (large, whole)):
        with pytest.raises(GrassError, match="regression"):
            choose_table_config(table, config)
    # That of a preset is the task of its benchmark.
    assert choose_table_config(large, GRASSConfig.preset("zinc")).task.metric == "auc"


def test_nan_targets_are_refused_unless_they_may_be_missing(molecules, tmp_path):
    data = read_tables(molecules, TableSpec(["size"]))
    data.splits["train"][0].y[0] = math.nan
    config = GRASSConfig().override(
        {"input.nodes.kind": "ogb-atom", "input.edges.kind": "ogb-bond"}
    )
    with pytest.raises(GrassError, match="graph 0"):
        prepare(data.splits, config, tmp_path)


def test_the_example_table_is_right_and_trains(tmp_path, monkeypatch, capsys):
    from rdkit.Chem import Crippen, rdMolDescriptors

    rows = read_csv(EXAMPLE)
    assert len({parse(row["smiles"]) and row["name"] for row in rows}) == len(rows) > 500
    for row in rows:
        mol = parse(row["smiles"])
        assert float(row["logP"]) == pytest.approx(Crippen.MolLogP(mol), abs=1e-2)
        assert float(row["TPSA"]) == pytest.approx(rdMolDescriptors.CalcTPSA(mol), abs=1e-1)
    monkeypatch.chdir(tmp_path)
    few = tmp_path / "few.csv"
    few.write_text("\n".join(EXAMPLE.read_text("utf-8").splitlines()[:61]), "utf-8")
    monkeypatch.setitem(BUNDLED, "example", replace(BUNDLED["example"], path=few))
    assert main(["train", "example", *SET, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["test"]["metric"] == "mae"
    assert (tmp_path / "runs" / "example" / "weights.safetensors").is_file()


def test_a_target_is_not_a_descriptor_and_a_constant_one_is_warned_of(tmp_path, caplog):
    from grass_gnn.data.tables.rows import read_rows

    path = tmp_path / "t.csv"
    path.write_text("smiles,y,z\n" + "".join(f"{'C' * n},1.0,{n}\n" for n in range(1, 9)))
    with pytest.raises(GrassError, match="descriptor"):
        read_rows(path, TableSpec(targets=("y",), descriptors=("z", "y")), 0)
    read_rows(path, TableSpec(targets=("y", "z")), 0)
    assert [record.getMessage() for record in caplog.records] == [
        "The target 'y' has the value 1 in all rows."
    ]


def test_new_models_use_cip_labels_and_say_so(tmp_path):
    from grass_gnn.data.tables.schema import TableSchema

    assert TableSpec(targets=("y",)).features == "ogb-cip"
    old = {"table": {"smiles": "smiles", "targets": ["y"]}}  # a card from before the label
    assert TableSchema.from_card(old).features == "ogb"
