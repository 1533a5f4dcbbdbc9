import logging
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tables import some_smiles, write_csv

from grass_gnn import progress
from grass_gnn.api.forest import describe_baseline
from grass_gnn.cli.common import _gain, parse_names
from grass_gnn.config import TaskConfig
from grass_gnn.data.tables.dataset import random_split, read_tables
from grass_gnn.data.tables.files import MISSING
from grass_gnn.data.tables.schema import TableSchema, class_name, infer_task
from grass_gnn.data.tables.spec import TableSpec
from grass_gnn.errors import GrassError
from grass_gnn.progress import LogLines, report_progress, reporting
from grass_gnn.tasks import make_task

SMILES = some_smiles(60)


def summary(tmp_path, values, smiles=SMILES, **fields):
    path = write_csv(tmp_path / "own.csv", ["smiles", "y"], list(zip(smiles, values, strict=False)))
    return " ".join(read_tables(path, TableSpec(("y",), **fields), workers=0).summary)


def test_numbers_with_units_and_identifiers_are_refused(tmp_path):
    with pytest.raises(GrassError, match="numbers with text"):
        summary(tmp_path, [f"-{n}.01 kcal/mol" for n in range(60)])
    with pytest.raises(GrassError, match="identifiers"):
        summary(tmp_path, [f"CHEMBL{n}" for n in range(60)])
    assert "3 classes" in summary(tmp_path, ["low", "high", "medium"] * 20)
    assert "identifier?" in summary(tmp_path, range(60))
    for cell in (">{}", "{} %", "<{} nM"):
        with pytest.raises(GrassError, match="numbers with text"):
            summary(tmp_path, [cell.format(10 * (n % 6)) for n in range(60)])
    percent = [f"{10 * (n % 6)} %" for n in range(60)]
    assert "6 classes" in summary(tmp_path, percent, task="classification")
    for names in (["1A2", "2C9", "2C19", "2D6", "3A4"], ["<1", "1-10", "10-100", ">100"]):
        assert f"{len(names)} classes" in summary(tmp_path, [*names * 20][:60])
    with pytest.raises(GrassError) as error:
        summary(tmp_path, [n / 7 for n in range(60)], task="binary")
    assert "with text" not in str(error.value)


def test_a_remark_in_place_of_numbers_is_no_class(tmp_path):
    labels = ["unclear" if n % 5 == 0 else n % 2 for n in range(60)]
    found = summary(tmp_path, labels)
    assert "Task: binary" in found and "Skipped 12" in found
    mostly = ["too weak" if n % 4 else n / 7 for n in range(60)]
    found = summary(tmp_path, mostly)
    assert "Task: regression" in found and "Skipped 45" in found
    path = write_csv(
        tmp_path / "two.csv", ["smiles", "a", "b"], zip(SMILES, labels, [0, 1] * 30, strict=True)
    )
    assert read_tables(path, TableSpec(("a", "b")), workers=0).task.kind == "multilabel"
    assert "--task binary" in summary(tmp_path, [2 * (n % 2) - 1 for n in range(60)])


def test_classes_that_differ_in_capitals_are_the_same(tmp_path):
    names = ["active", "inactive", "Active"]
    path = write_csv(tmp_path / "own.csv", ["smiles", "y"], zip(SMILES, names * 20, strict=True))
    data = read_tables(path, TableSpec(("y",)), workers=0)
    assert data.schema.classes == ["active", "inactive"] and not data.skipped
    assert sum(float(g.y.sum()) for graphs in data.splits.values() for g in graphs) == 20
    assert "capitals" in " ".join(data.summary)


def classes_of(tmp_path, cells):
    path = write_csv(
        tmp_path / "own.csv",
        ["smiles", "y"],
        [[s, cells[n % len(cells)]] for n, s in enumerate(SMILES)],
    )
    data = read_tables(path, TableSpec(("y",), task="classification"), workers=0)
    assert not data.skipped and "capitals" not in " ".join(data.summary)
    found = {int(g.y) for graphs in data.splits.values() for g in graphs}
    assert found == set(range(len(data.schema.classes)))
    return data.schema.classes


CELLS = ["1", "1.0", "01", "+1", " 1", "0", "-0", "1e0", "2E1", "2e1", "007", "A", "a", "ß", "SS"]
CELLS += [
    "İ",
    "ı",
    "I",
    "Σ",
    "ς",
    "1_0",
    "1,5",
    "yes",
    "No",
    "TRUE",
    "nan",
    "-",
    "",
    "é",
    "e\u0301",
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(CELLS), max_size=7))  # of more, some would be identifiers
def test_every_cell_of_a_column_of_classes_has_one_of_its_classes(cells):
    cells = [*cells, "a", "b"]
    task, classes, _ = infer_task({"y": cells}, "classification")
    schema = TableSchema(smiles="s", targets=["y"], classes=classes)
    known = [cell for cell in cells if cell.strip().lower() not in MISSING]
    numbers = [schema.encode(make_task(task), [cell])[0] for cell in known]
    assert set(numbers) == set(range(len(classes))) and task.outputs == len(classes)
    assert [schema.encode(make_task(task), [name])[0] for name in classes] == sorted(set(numbers))


def test_names_of_classes_that_look_like_numbers_stay_as_they_are(tmp_path):
    enzymes = ["1A2", "2C9", "2D6", "2E1", "3A4"]
    assert classes_of(tmp_path, enzymes[::-1]) == enzymes
    assert classes_of(tmp_path, ["007", "07", "7", "x"]) == ["007", "07", "7", "x"]
    assert classes_of(tmp_path, ["1_000", "1000", "5"]) == ["5", "1000", "1_000"]
    # The same number is the same class: everywhere if all are numbers, else if it is plain.
    assert classes_of(tmp_path, ["2e1", "20", "3.00", "3", "04"]) == ["3", "4", "20"]
    assert classes_of(tmp_path, ["2.0", "2", "+2", "other", "1.5"]) == ["1.5", "2", "other"]
    large = ["10000000000000000", "10000000000000001"]  # the same number in floating point
    assert [class_name(one, numeric=True) for one in large] == large


def test_the_class_whose_probability_is_predicted_is_named(tmp_path):
    assert "those of 'inactive'" in summary(tmp_path, ["inactive", "active"] * 30)
    for values in ([0, 1] * 30, ["a", "b", "c"] * 20):
        assert "those of" not in summary(tmp_path, values)


def test_labels_may_be_written_as_decimal_numbers(tmp_path):
    rows = [[s, f"{n % 2}.00", ("0.00", "1", "yes")[n % 3]] for n, s in enumerate(SMILES)]
    path = write_csv(tmp_path / "own.csv", ["smiles", "a", "b"], rows)
    data = read_tables(path, TableSpec(("a", "b")), workers=0)
    assert data.task.kind == "multilabel" and not data.skipped
    found = torch.cat([g.y.view(1, 2) for graphs in data.splits.values() for g in graphs])
    assert found.sum(0).tolist() == [30, 40]


def test_tables_without_a_usable_row_say_why(tmp_path):
    path = tmp_path / "own.csv"
    for text, word in (("smiles,y\n", "no rows"), ("smiles,y\nC,1,2\nCC,2,3\n", "3 cells")):
        path.write_text(text)
        with pytest.raises(GrassError, match=word):
            read_tables(path, TableSpec(("y",)), workers=0)
    with pytest.raises(GrassError, match="too large"):
        summary(tmp_path, [1e30 * n for n in range(1, 61)])
    with pytest.raises(GrassError, match="twice"):
        read_tables(path, TableSpec(("y", "y")), workers=0)
    with pytest.raises(GrassError, match="did you mean 'scaffold'"):
        summary(tmp_path, range(60), split="scafold")
    with pytest.raises(GrassError, match="none of train"):
        summary(tmp_path, range(60), split="y")


def test_ranges_outliers_and_few_rows(tmp_path):
    assert "logarithm" in summary(tmp_path, [10.0 ** (n % 7) for n in range(60)])
    assert "line 5" in summary(
        tmp_path, [1e6 if n == 3 else -(n % 5) for n in range(400)], some_smiles(400)
    )
    assert "line 5" in summary(tmp_path, [1e6 if n == 3 else -(n % 5) for n in range(40)])
    assert "few" in summary(tmp_path, [1.5, 2.5, 0.1, -1], SMILES[:4])
    plain = summary(tmp_path, [n % 10 - 5 for n in range(60)], some_smiles(100))
    assert "logarithm" not in plain and "identifier" not in plain


@pytest.mark.parametrize(("factor", "told"), [(1, 0), (8, 0), (12, 1), (1e-6, 1), (0, 0)])
def test_targets_of_different_sizes_are_pointed_out(tmp_path, factor, told):
    rows = [[text, n / 7, factor * n / 7 if n % 3 else ""] for n, text in enumerate(SMILES)]
    path = write_csv(tmp_path / "own.csv", ["smiles", "a", "b"], rows)
    found = read_tables(path, TableSpec(("a", "b")), workers=0).summary
    said = [sentence for sentence in found if "differ in size" in sentence]
    assert len(said) == told
    for sentence in said:
        assert f"mostly on {'b' if factor > 1 else 'a'!r}" in sentence


def test_values_that_stand_for_a_gap_are_asked_about(tmp_path):
    values = [-999 if n % 15 == 4 else n % 10 for n in range(60)]
    assert "is -999 in 4 rows, far from all others: does it mean" in summary(tmp_path, values)
    assert "far from" not in summary(tmp_path, [n % 10 - 5 for n in range(60)])


def test_points_that_may_separate_thousands_are_asked_about(tmp_path):
    values = [265, 191, "9.722", 25, "41.424", 82, "1.714", *range(100, 153)]
    assert "such as 265, and all others" in summary(tmp_path, values)
    for other in ("0.722", "9.72", "1000.722"):
        assert "thousands" not in summary(tmp_path, [other, *values[1:]])


def test_other_columns_tell_of_bounds_and_units(tmp_path):
    def told(relations, units, header=("Standard Relation", "Standard Units"), task=None):
        cells = zip(SMILES, [n % 7 + 0.5 for n in range(60)], relations, units, strict=True)
        path = write_csv(tmp_path / "own.csv", ["smiles", "y", *header], cells)
        return " ".join(read_tables(path, TableSpec(("y",), task=task), workers=0).summary)

    relations, units = ["'='", "'>'", "'='"] * 20, ["nM"] * 59 + ["ug.mL-1"]
    found = told(relations, units)
    assert "20 rows have '>' in 'Standard Relation': their values are bounds." in found
    assert "'nM' and 'ug.mL-1'" in found
    plain = told(["=", "~", ""] * 20, ["nM", ""] * 30)
    assert "bounds" not in plain and "unit" not in plain
    names = told(["=", ">", "x"] * 20, units, ("relation", "community"))
    assert "bounds" not in names and "unit?" not in names
    standard = told(["mg", "g"] * 30, ["nM"] * 60, ("units", "standard_units"))
    assert "unit?" not in standard
    assert "bounds" not in told(relations, units, task="classification")


def test_conflicting_duplicates_and_salts(tmp_path):
    smiles = ["CCO", "OCC", "CC", "CC", "[Na+].[Cl-]", *SMILES[:30]]
    found = summary(tmp_path, [1, 2, 3, 3, *(n % 7 for n in range(31))], smiles)
    assert "1 molecule has different values" in found and "1 in line 2 and 2 in line 3" in found
    assert "several components" in found


def test_rare_classes_are_stratified_and_others_drawn_as_before(tmp_path):
    labels = [int(n % 20 == 0) for n in range(200)]
    drawn = random_split(200, seed=1, labels=labels)
    for split, share in (("train", 0.8), ("val", 0.1), ("test", 0.1)):
        own = [label for label, name in zip(labels, drawn, strict=True) if name == split]
        assert (sum(own), len(own)) == (10 * share, 200 * share)
    assert random_split(3, labels=[0, 0, 1])[2] == "train"
    path = write_csv(
        tmp_path / "rare.csv", ["smiles", "y"], zip(some_smiles(200), labels, strict=True)
    )
    data = read_tables(path, TableSpec(("y",)), workers=0)
    assert all(sum(int(g.y) for g in graphs) > 0 for graphs in data.splits.values())
    assert "weighted-bce" in " ".join(data.summary)
    # With balanced classes, the split stays what it was.
    even = [n % 2 for n in range(60)]
    path = write_csv(tmp_path / "even.csv", ["smiles", "y"], zip(SMILES, even, strict=True))
    rows = read_tables(path, TableSpec(("y",)), 4, workers=0).rows
    assert [row.split for row in rows] == random_split(60, seed=4)


def test_splits_of_one_class_and_targets_without_training_rows_are_named(tmp_path):
    smiles, labels = some_smiles(60), [1] * 30 + [0] * 30
    splits = ["train"] * 40 + ["val"] * 10 + ["test"] * 10
    rows = list(zip(smiles, labels, splits, strict=True))
    path = write_csv(tmp_path / "own.csv", ["smiles", "y", "part"], rows)
    found = read_tables(path, TableSpec(("y",), split="part"), workers=0).summary
    assert sum("undefined" in sentence for sentence in found) == 2
    rows = [[text, 1.5, "" if part == "train" else 2.5, part] for text, _, part in rows]
    path = write_csv(tmp_path / "own.csv", ["smiles", "a", "b", "part"], rows)
    found = read_tables(path, TableSpec(("a", "b"), split="part"), workers=0).summary
    assert [s for s in found if "training row" in s and "'b'" in s] and "'a'" not in " ".join(found)
    row = {"mean": math.nan, "averaged": {"16": math.nan}, "metric": "auc"}
    assert "nan" not in _gain("test", row, 16)


def test_weights_balance_labels():
    settings = {"kind": "multilabel", "outputs": 2, "metric": "ap", "missing": True}
    weighted = make_task(TaskConfig(loss="weighted-bce", **settings))
    target = torch.tensor([[1.0, 0], [0, 0], [0, 0], [0, math.nan]])
    output = torch.zeros(4, 2, requires_grad=True)
    loss = weighted.loss(output, target, 0.0)
    assert math.isclose(loss.item(), math.log(2) * (4 + 1.5) / 7, rel_tol=1e-5)
    loss.backward()
    # At p = 1/2, the gradients of both values of a label cancel.
    assert abs(float(output.grad[:, 0].sum())) < 1e-6
    assert torch.isfinite(output.grad).all()


def test_logs_have_lines_with_an_estimate(monkeypatch, caplog):
    now = [0.0]
    lines = LogLines(clock=lambda: now[0])
    with caplog.at_level(logging.INFO, "grass_gnn.progress"):
        for done in range(1, 101):
            now[0] += 1.0
            lines(f"Training · epoch {done}", done, 200)
    assert [record.message for record in caplog.records] == [
        "Training · epoch 30: 30 of 200, about 3 min left.",
        "Training · epoch 60: 60 of 200, about 2 min left.",
        "Training · epoch 90: 90 of 200, about 2 min left.",
    ]
    caplog.clear()
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, "grass_gnn.progress"), reporting():
        report_progress("Reading", 1, 2)
    assert caplog.records


def test_a_target_may_have_commas_in_its_name(tmp_path):
    rows = [[text, n] for n, text in enumerate(SMILES)]
    path = write_csv(tmp_path / "own.csv", ["smiles", "IC50, nM"], rows)
    for targets in (("IC50", "nM"), ("IC50, nM",)):
        data = read_tables(path, TableSpec(targets), workers=0)
        assert data.schema.targets == ["IC50, nM"] and not data.skipped
    columns = ["smiles", "logS", "IC50, nM", "k, 1/s, 298 K", "k"]
    path = write_csv(tmp_path / "own.csv", columns, [[text, n, n, n, n] for text, n in rows])
    for asked, targets in [
        ("IC50, nM,logS", ["IC50, nM", "logS"]),
        ("logS,IC50,nM", ["logS", "IC50, nM"]),
        ("logS,k, 1/s, 298 K,IC50, nM", ["logS", "k, 1/s, 298 K", "IC50, nM"]),
        ("k,logS", ["k", "logS"]),
    ]:
        data = read_tables(path, TableSpec(tuple(parse_names(asked))), workers=0)
        assert data.schema.targets == targets
    with pytest.raises(GrassError, match="no column 'nM'"):
        read_tables(path, TableSpec(("logS", "nM")), workers=0)


def test_the_column_that_is_neither_a_number_nor_a_label_is_named(tmp_path):
    rows = [[text, ("yes", "no")[n % 2], f"text {n % 3}"] for n, text in enumerate(SMILES)]
    path = write_csv(tmp_path / "own.csv", ["smiles", "a", "b"], rows)
    with pytest.raises(GrassError, match="'b' contains text"):
        read_tables(path, TableSpec(("a", "b")), workers=0)


def test_an_undefined_score_of_a_baseline_is_not_told():
    found = {"model": "forest", "inputs": "counts", "rows": 5, "drawn_from": 5, "test": {}}
    assert describe_baseline(found, "auc") == ""
    assert "0.75" in describe_baseline(found | {"test": {"auc": 0.75}}, "auc")
