"""Predictions of tables: no row is lost or moved, and none crashes, whatever it contains."""

import csv
import gzip
import json
import math
import shutil
from types import SimpleNamespace

import numpy
import pytest
import torch
from small_tables import TINY, read_csv, some_smiles, write_csv

from fuzz import structures
from grass_gnn import GrassError, load_model
from grass_gnn.api import prediction
from grass_gnn.api.fitting import fit_table
from grass_gnn.api.prediction import predict_table
from grass_gnn.cli import main
from grass_gnn.cli.common import print_json
from grass_gnn.config import TaskConfig
from grass_gnn.data.tables.files import table_name
from grass_gnn.data.tables.schema import TableSchema
from grass_gnn.tasks import make_task
from grass_gnn.uncertainty.ensembles import Ensemble, Spread

HOSTILE = [  # SMILES, and a word of the reason; none for a row that has a value
    ("", "empty"),
    ("   ", "empty"),
    ("this is no molecule", "text after"),
    ("C", None),
    ("[Na+]", None),
    ("[Na+].[Cl-]", None),
    ("CC(=O)O.NCCO", None),
    ("C" * 300, None),
    ("C" * 1500, "1,500 atoms"),
    ("C" * 1_000_000, "characters"),
    ("日本語", "not ASCII"),
    ("C\u200bC", "not ASCII"),
    ("=cmd|' /C calc'!A0", "text after"),
    ("@SUM(1+1)", "not valid"),
    ("1,234.5", "not valid"),
    ("nan", "not valid"),
    ("smiles", "not valid"),
    ("c1ccccc", "not valid"),
    ("C(C)(C)(C)(C)C", "molecule is not valid"),
    ("[U]", None),
    ("*CC*", None),
    ("C" + "(" * 500, "not valid"),
    ('quo"te', "not valid"),
    ("two\nlines", "text after"),
    ("ÇC", "not ASCII"),
    ("C😀", "not ASCII"),
    ("C C", "text after"),
    (structures.smiles_of(structures.HARD["hypercube"]), "rings"),
    ("CCO", None),
]
TARGETS = ["1,5", "NaN", "inf", "-inf", "", "1e400", "=1+1", "٣"]


def hostile_rows():
    return [
        [f"row{number}", smiles, TARGETS[number % len(TARGETS)], "x"]
        for number, (smiles, _) in enumerate(HOSTILE)
    ]


@pytest.mark.parametrize("ending", ["plain", "crlf", "bom", "tsv", "gz", "semicolon"])
def test_hostile_rows_all_come_back_in_order(run, tmp_path, ending):
    name = {"tsv": "in.tsv", "gz": "in.csv.gz"}.get(ending, "in.csv")
    path = tmp_path / "in.csv"
    delimiter = {"tsv": "\t", "semicolon": ";"}.get(ending, ",")
    rows = hostile_rows()
    write_csv(
        path,
        ["id", "smiles", "size", "size"],  # a name that stands twice
        rows,
        delimiter=delimiter,
        lineterminator="\r\n" if ending == "crlf" else "\n",
    )
    data = path.read_bytes()
    if ending == "bom":
        data = b"\xef\xbb\xbf" + data
    path.unlink()
    (tmp_path / name).write_bytes(gzip.compress(data) if ending == "gz" else data)
    summary = predict_table([load_model(run)], tmp_path / name, tmp_path / "out.csv", rewirings=2)
    csv.field_size_limit(10**9)
    found = read_csv(tmp_path / "out.csv")
    assert [row["id"] for row in found] == [row[0] for row in rows]
    assert summary.rows == len(HOSTILE) == summary.predicted + summary.failed
    for row, (smiles, reason) in zip(found, HOSTILE, strict=True):
        if reason is None:
            assert row["error"] == "" and float(row["size_std"]) >= 0, smiles[:50]
            assert float(row["size_pred"]) == float(row["size_pred"])
        else:
            assert reason in row["error"] and row["size_pred"] == "", smiles[:50]


def test_rows_of_broken_quotes_cells_and_bytes_do_not_affect_others(run, tmp_path):
    lines = [
        b"id,smiles",
        b'1,"CCO',  # a quotation mark that is never closed
        b"2,CCO",
        b"3,CCO,too,many",
        b"4",
        b"",
        b"6,\xff\xfe\x00CC",
        b'7,"C',
        b'C"',  # a cell of two lines
        b"9,CCO",
        b'10,"CC',
        b"",
    ]
    (tmp_path / "in.csv").write_bytes(b"\n".join(lines) + b"\n\n\n")
    predict_table([load_model(run)], tmp_path / "in.csv", tmp_path / "out.csv", rewirings=1)
    found = read_csv(tmp_path / "out.csv")
    assert [row["id"] for row in found] == ["1", "2", "3", "4", "", "6", "7", "9", "10"]
    assert "4 cells" in found[2]["error"] and "empty" in found[3]["error"]
    for place in (1, 7):
        assert found[place]["error"] == ""


def test_formulas_are_written_as_text(run, tmp_path):
    path = write_csv(tmp_path / "in.csv", ["smiles", "=note"], [["CC", "=1+1"], ["CC", "-3.5"]])
    predict_table([load_model(run)], path, tmp_path / "out.csv", rewirings=1)
    found = read_csv(tmp_path / "out.csv")
    assert [row["'=note"] for row in found] == ["'=1+1", "-3.5"]


def test_deterministic_values_depend_on_the_molecule_alone(run, tmp_path, monkeypatch):
    model = load_model(run)
    smiles = ["OCC", "C(=O)(O)c1ccccc1", "C(F)CCN"]
    same = ["CCO", "c1ccccc1C(O)=O", "NCCCF"]  # the same molecules, written otherwise

    def values(name, texts, **options):
        path = write_csv(tmp_path / "in.csv", ["smiles"], [[text] for text in texts])
        predict_table([model], path, tmp_path / name, rewirings=3, deterministic=True, **options)
        found = read_csv(tmp_path / name)
        return {row["smiles"]: (float(row["size_pred"]), row["size_std"]) for row in found}

    first = values("a.csv", smiles)
    monkeypatch.setattr(prediction, "CHUNK", 7)
    second = values("b.csv", [*some_smiles(30, seed=5), *reversed(same)], seed=9)
    for one, other in zip(smiles, same, strict=True):
        assert second[other][0] == pytest.approx(first[one][0], abs=1e-6)
        assert float(first[one][1]) > 0  # several rewirings, each of them repeatable


def test_output_does_not_depend_on_workers_and_appears_whole(run, tmp_path):
    path = write_csv(tmp_path / "in.csv", ["smiles"], [[text] for text in some_smiles(150, 3)])
    for workers in (0, 2):
        predict_table([load_model(run)], path, tmp_path / f"{workers}.csv", workers=workers)
    assert (tmp_path / "0.csv").read_bytes() == (tmp_path / "2.csv").read_bytes()
    with pytest.raises(GrassError, match="structure"):
        predict_table([load_model(run)], path, tmp_path / "no.csv", smiles="structure")
    assert not (tmp_path / "no.csv").exists()


def test_a_copied_run_predicts_and_a_damaged_one_says_which_file(run, molecules, tmp_path, capsys):
    copy = tmp_path / "elsewhere" / "run"
    shutil.copytree(run, copy)
    output = tmp_path / "out.csv"
    shutil.rmtree(copy / "data")  # only evaluate needs it
    assert main(["predict", str(copy), str(molecules), "-o", str(output), "--json"]) == 0
    assert len(read_csv(output)) == 80
    for name in ("weights.safetensors", "config.json", "similarity.safetensors"):
        whole = (copy / name).read_bytes()
        (copy / name).write_bytes(whole[: len(whole) // 2])
        capsys.readouterr()
        assert main(["predict", str(copy), str(molecules), "-o", str(output)]) == 1
        assert name in capsys.readouterr().err
        (copy / name).write_bytes(whole)


def test_unlike_molecules_are_warned_about(run, molecules, tmp_path):
    strange = "[Si]1([Si])O[P](=O)([Se]C)O1"
    known = read_csv(molecules)[0]["smiles"]
    path = write_csv(tmp_path / "in.csv", ["smiles"], [[strange], [known]])
    predict_table([load_model(run)], path, tmp_path / "out.csv", rewirings=1)
    found = read_csv(tmp_path / "out.csv")
    assert "unlike" in found[0]["warning"] and float(found[0]["similarity"]) < 0.3
    assert found[1]["warning"] == ""


def test_ensemble_has_both_kinds_of_spread(run, molecules, tmp_path):
    fit_table(molecules, ["size"], tmp_path / "other", settings=TINY, seed=1)
    models = [load_model(run), load_model(tmp_path / "other")]
    predict_table(models, molecules, tmp_path / "out.csv", rewirings=3)
    for row in read_csv(tmp_path / "out.csv"):
        parts = [float(row[f"size_std_{kind}"]) for kind in ("rewirings", "models")]
        assert float(row["size_std"]) == pytest.approx(math.hypot(*parts), rel=1e-3)
        assert min(parts) > 0
    fit_table(molecules, ["large"], tmp_path / "binary", settings=TINY)
    with pytest.raises(GrassError, match="ensemble"):
        predict_table([models[0], load_model(tmp_path / "binary")], molecules, tmp_path / "x.csv")


def test_targets_in_the_table_are_scored(run, molecules, tmp_path, capsys):
    output = str(tmp_path / "out.csv")
    assert main(["predict", str(run), str(molecules), "-o", output]) == 0
    error = capsys.readouterr().err
    assert "Predicted 80 of 80 rows" in error and "mae" in error and "correlation" in error


def test_scores_of_training_rows_are_said_to_be_too_good(run, molecules, tmp_path, capsys):
    new = write_csv(tmp_path / "new.csv", ["smiles", "size"], [["OCC(Br)C1CC1", 3], ["BrCCBr", 4]])
    models = [load_model(run)]
    assert predict_table(models, new, tmp_path / "out.csv", rewirings=1).familiar == 0
    unlabelled = write_csv(tmp_path / "unlabelled.csv", ["smiles"], [["CCO"]] * 20)
    assert predict_table(models, unlabelled, tmp_path / "out.csv", rewirings=1).familiar == 0
    lines = read_csv(run / "splits.csv")
    trained = sum(line["split"] == "train" for line in lines)
    output = str(tmp_path / "out.csv")
    assert main(["predict", str(run), str(molecules), "-o", output, "--json"]) == 0
    assert trained <= json.loads(capsys.readouterr().out)["familiar"] <= len(lines)
    assert main(["predict", str(run), str(molecules), "-o", output]) == 0
    assert (
        "of 80 scored rows have the fingerprint of a training molecule" in capsys.readouterr().err
    )
    assert main(["predict", str(run), str(new), "-o", output]) == 0
    assert "fingerprint" not in capsys.readouterr().err


def test_scores_of_some_rows_say_of_how_many(run, tmp_path, capsys):
    cells = [["CCO", 3], ["CCCO", ""], ["CC", 2], ["CCC", "?"], ["CCCC", 4]]
    path = write_csv(tmp_path / "in.csv", ["smiles", "size"], cells)
    assert main(["predict", str(run), str(path), "-o", str(tmp_path / "out.csv")]) == 0
    assert "Scores of 3 of 5 rows" in capsys.readouterr().err


def test_undefined_scores_are_null_in_json(capsys):
    print_json({"a": [math.nan, 1.5], "b": (math.inf, "NaN"), "c": {"d": None}})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "a": [None, 1.5],
        "b": [None, "NaN"],
        "c": {"d": None},
    }


def test_names_of_output_files_say_what_is_in_them(run, tmp_path, monkeypatch):
    path = write_csv(tmp_path / "new.v1.csv", ["smiles"], [["CCO"], ["CC"]])
    model = load_model(run)
    for name in ("out.csv", "out.csv.gz", "out.tsv.gz", "plain"):
        predict_table(model, path, tmp_path / name, rewirings=1)
    text = (tmp_path / "out.csv").read_bytes()
    assert gzip.decompress((tmp_path / "out.csv.gz").read_bytes()) == text
    assert gzip.decompress((tmp_path / "out.tsv.gz").read_bytes()).startswith(b"smiles\tsize_pred")
    assert (tmp_path / "plain").read_bytes() == text
    for name in ("out.xls", "out.ods.gz", "out.json", "out.parquet", "out.csv.zip"):
        with pytest.raises(GrassError, match=r"in \.csv, \.tsv, \.txt"):
            predict_table(model, path, tmp_path / name)
        assert not (tmp_path / name).exists()
    monkeypatch.chdir(tmp_path)
    assert main(["predict", str(run), path.name]) == 0
    assert (tmp_path / "new.v1-predicted.csv").is_file()
    names = {"a.b.SDF.gz": "a.b", "x.csv": "x", ".csv": ".csv", "no.ending": "no.ending"}
    assert {name: table_name(name) for name in names} == names


def test_embeddings_of_molecules_and_atoms(run, molecules, tmp_path, capsys):
    path = write_csv(tmp_path / "in.csv", ["smiles"], [["CCO"], ["no"], ["c1ccccc1"], ["OCC"]])
    arguments = ["embed", str(run), str(path), "--rewirings", "2", "-o"]
    assert main([*arguments, str(tmp_path / "x.npz"), "--deterministic"]) == 0
    found = numpy.load(tmp_path / "x.npz")
    assert found["row"].tolist() == [0, 2, 3] and found["embedding"].shape == (3, 24)
    assert numpy.allclose(found["embedding"][0], found["embedding"][2], atol=1e-5)
    assert main([*arguments, str(tmp_path / "x.parquet"), "--level", "node"]) == 0
    frame = pytest.importorskip("pandas").read_parquet(tmp_path / "x.parquet")
    assert frame["row"].tolist() == [0] * 3 + [2] * 6 + [3] * 3 and frame["atom"].max() == 5
    assert main([*arguments, str(tmp_path / "x.txt")]) == 1
    assert ".npz" in capsys.readouterr().err


def test_the_column_of_molecules_may_have_another_usual_name(run, tmp_path, caplog):
    path = write_csv(tmp_path / "in.csv", ["Canonical SMILES", "error"], [["CCO", "none"]])
    predict_table([load_model(run)], path, tmp_path / "out.csv", rewirings=1)
    with (tmp_path / "out.csv").open() as file:
        header, row = csv.reader(file)
    assert row[header.index("size_pred")] and row[header.index("error")] == "none"
    assert row[-1] == "" and "error" in caplog.text  # two columns of that name
    write_csv(path, ["compound"], [["CCO"]])
    with pytest.raises(GrassError, match="--smiles"):
        predict_table([load_model(run)], path, tmp_path / "out.csv")


def test_no_probability_is_written_as_certain():
    task = make_task(TaskConfig(kind="binary", loss="bce", metric="auc"))
    schema = TableSchema(smiles="s", targets=["y"])
    ensemble = SimpleNamespace(task=task, schema=schema, models=[None])
    for certain in (0.0, 1.0):
        one = Spread(*(torch.tensor([value]) for value in (certain, 0.1, 0.1, 0.0)))
        assert 0 < float(Ensemble.prediction_cells(ensemble, one, None)[0]) < 1


def test_predictions_far_from_zero_keep_their_digits():
    """Total energies differ in their last digits only."""
    task = make_task(TaskConfig())
    schema = TableSchema(smiles="s", targets=["E"])
    ensemble = SimpleNamespace(task=task, schema=schema, models=[None])
    one = Spread(*torch.tensor([[-20_000.0535], [0.0312345], [0.0312345], [0.0]]))
    ends = one.mean - one.std, one.mean + one.std
    assert Ensemble.prediction_cells(ensemble, one, ends) == [
        "-20000.053",
        "0.03123",
        "-20000.084",
        "-20000.021",
    ]
