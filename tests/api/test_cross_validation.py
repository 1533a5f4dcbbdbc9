"""Cross-validation: every row is tested on once, nothing leaks, finished folds are kept."""

import json
import shutil
from collections import Counter

import numpy
import pytest
from sklearn.metrics import mean_absolute_error, r2_score
from small_tables import TINY, read_csv, some_smiles, write_csv

from grass_gnn import GrassError
from grass_gnn.api import cross_validation, fitting
from grass_gnn.api.cross_validation import FoldSplits, cross_validate
from grass_gnn.cli import main
from grass_gnn.data.tables.dataset import group_folds, random_folds
from grass_gnn.data.tables.reading import read_scaffolds
from grass_gnn.data.tables.rows import read_rows
from grass_gnn.data.tables.spec import TableSpec
from grass_gnn.files import LOCK, try_lock
from grass_gnn.training.signals import Interrupted
from grass_gnn.uncertainty.ensembles import load_models

SET = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def folded(molecules, tmp_path_factory):
    """A finished cross-validation of three folds."""
    folder = tmp_path_factory.mktemp("folds") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRASS_OPS", "reference")
        found = cross_validate(molecules, ["size"], folder, 3, settings=TINY, forest=False)
    return folder, found


def splits_of(folder):
    return {row["line"]: row["split"] for row in read_csv(folder / "splits.csv")}


def test_folds_are_even_random_and_repeatable():
    labels = [0] * 50 + [1] * 13 + [2] * 4
    found = random_folds(67, 4, seed=1, labels=labels)
    assert max(Counter(found).values()) - min(Counter(found).values()) <= 1
    for label in range(3):
        counts = Counter(fold for fold, own in zip(found, labels, strict=True) if own == label)
        assert max(counts.values()) - min(counts[fold] for fold in range(4)) <= 1
    assert found == random_folds(67, 4, seed=1, labels=labels)
    assert found != random_folds(67, 4, seed=2, labels=labels)
    assert found != sorted(found)


def test_groups_stay_together_and_are_balanced():
    groups = ["a"] * 30 + ["b"] * 20 + ["c"] * 12 + ["d"] * 7 + [""] * 11
    found = group_folds(groups, 3)
    for name in "abcd":
        assert len({fold for fold, own in zip(found, groups, strict=True) if own == name}) == 1
    assert sorted(Counter(found).values()) == [25, 25, 30]
    with pytest.raises(GrassError, match="2 scaffold groups are too few"):
        group_folds(["a", "b", "b"], 3)


def test_every_row_is_tested_on_once_by_a_run_that_did_not_see_it(folded, molecules):
    folder, found = folded
    rows = read_csv(folder / "out_of_fold.csv")
    assert [row["line"] for row in rows] == [str(number) for number in range(2, 82)]
    assert [row["smiles"] for row in rows] == [row["smiles"] for row in read_csv(molecules)]
    assert found.rows == [27, 27, 26]
    for number in (1, 2, 3):
        splits = splits_of(folder / f"fold-{number}")
        tested = {line for line, split in splits.items() if split == "test"}
        assert tested == {row["line"] for row in rows if row["fold"] == str(number)}
        predictions = read_csv(folder / f"fold-{number}" / "test_predictions.csv")
        own = [row for row in rows if row["fold"] == str(number)]
        for row, prediction in zip(own, predictions, strict=True):
            assert (row["line"], row["smiles"]) == (prediction["row"], prediction["smiles"])
            assert float(row["size_pred"]) == float(prediction["size_pred"])
            assert float(row["size"]) == pytest.approx(float(prediction["size"]), rel=1e-5)
        assert Counter(splits.values())["val"] == 6  # a ninth of the rest


def test_summary_agrees_with_scikit_learn(folded):
    folder, found = folded
    kept = json.loads((folder / "cross_validation.json").read_text())
    assert kept["runs"] == ["fold-1", "fold-2", "fold-3"]
    rows = read_csv(folder / "out_of_fold.csv")
    truth, value = (numpy.array([float(row[c]) for row in rows]) for c in ("size", "size_pred"))
    fold = numpy.array([int(row["fold"]) for row in rows])
    for name, function in (("mae", mean_absolute_error), ("r2", r2_score)):
        scores = [function(truth[fold == n], value[fold == n]) for n in (1, 2, 3)]
        one = kept["metrics"][name]
        assert one["folds"] == pytest.approx(scores, rel=1e-4)
        assert one["mean"] == pytest.approx(numpy.mean(scores), rel=1e-4)
        assert one["std"] == pytest.approx(numpy.std(scores, ddof=1), rel=1e-3)
        assert one["pooled"] == pytest.approx(function(truth, value), rel=1e-5)
        assert one["interval"][0] < one["pooled"] < one["interval"][1]
    assert found.metrics["mae"].pooled == kept["metrics"]["mae"]["pooled"]


def test_the_folder_predicts_as_the_ensemble_of_its_folds(folded, molecules, tmp_path, capsys):
    folder, _ = folded
    assert len(load_models([folder])) == 3
    arguments = [str(molecules), "--rewirings", "2", "-o"]
    assert main(["predict", str(folder), *arguments, str(tmp_path / "a.csv")]) == 0
    more = [word for n in (2, 3) for word in ("--ensemble", str(folder / f"fold-{n}"))]
    one = [str(folder / "fold-1"), *more]
    assert main(["predict", *one, *arguments, str(tmp_path / "b.csv")]) == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert "size_std_models" in read_csv(tmp_path / "a.csv")[0]


@pytest.mark.parametrize("command", ["explain", "evaluate", "report"])
def test_commands_for_a_single_run_name_the_first_fold(folded, molecules, capsys, command):
    folder, _ = folded
    table = [str(molecules)] if command == "explain" else []
    assert main([command, str(folder), *table]) == 1
    error = capsys.readouterr().err
    assert "cross-validation" in error and "fold-1" in error


def test_molecules_are_compared_with_the_training_sets_of_all_folds(folded, molecules, tmp_path):
    folder, _ = folded
    output, seen = tmp_path / "out.csv", {}
    for name in ("", "fold-1", "fold-2", "fold-3"):
        assert main(["predict", str(folder / name), str(molecules), "-o", str(output)]) == 0
        found = enumerate(read_csv(output), 2)
        seen[name] = {str(line) for line, row in found if row["similarity"] == "1.000"}
    for name in ("fold-1", "fold-2", "fold-3"):
        trained = {line for line, split in splits_of(folder / name).items() if split == "train"}
        assert trained <= seen[name] < seen[""]
    assert seen[""] == seen["fold-1"] | seen["fold-2"] | seen["fold-3"]


def test_interrupted_folds_are_resumed_and_finished_ones_kept(
    folded, molecules, tmp_path, monkeypatch
):
    folder, found = folded
    train_table, trained = cross_validation.train_table, []

    def stopping(data, config, out, *given, **named):
        trained.append(out.name)
        if len(trained) == 2:
            raise Interrupted("Stopped.")
        return train_table(data, config, out, *given, **named)

    monkeypatch.setattr(cross_validation, "train_table", stopping)
    out = tmp_path / "out"
    with pytest.raises(Interrupted, match=r"fold 2 of 3; .*--resume --out .*out\."):
        cross_validate(molecules, ["size"], out, 3, settings=TINY)
    with pytest.raises(GrassError, match="not finished"):
        load_models([out])
    with pytest.raises(GrassError, match="--resume"):
        cross_validate(molecules, ["size"], out, 3, settings=TINY)
    with pytest.raises(GrassError, match="different folds"):
        cross_validate(molecules, ["size"], out, 4, settings=TINY, resume=True)
    other = TINY | {"training.epochs": 4}
    with pytest.raises(GrassError, match="different settings"):
        cross_validate(molecules, ["size"], out, 3, settings=other, resume=True)
    again = cross_validate(molecules, ["size"], out, 3, settings=TINY, resume=True)
    assert trained == ["fold-1", "fold-2", "fold-2", "fold-3"]
    assert again == found  # the same as without a stop
    for name in ("cross_validation.json", "out_of_fold.csv", "folds.csv"):
        assert (out / name).read_bytes() == (folder / name).read_bytes()


def test_a_fold_without_its_error_bars_is_not_finished(folded, molecules, tmp_path, monkeypatch):
    folder, found = folded
    add_error_bars, train_table, trained = fitting.add_error_bars, fitting.train_table, []

    def stopping(*_):
        raise Interrupted("Stopped.")

    def recording(data, config, out, *given):
        trained.append(out.name)
        return train_table(data, config, out, *given)

    out = tmp_path / "out"
    monkeypatch.setattr(fitting, "add_error_bars", stopping)
    with pytest.raises(Interrupted):
        cross_validate(molecules, ["size"], out, 3, settings=TINY)
    assert (out / "fold-1" / "results.json").is_file()
    monkeypatch.setattr(fitting, "add_error_bars", add_error_bars)
    assert cross_validate(molecules, ["size"], out, 3, settings=TINY, resume=True) == found
    name = "out_of_fold.csv"
    assert (out / name).read_bytes() == (folder / name).read_bytes()  # with all intervals
    # Of earlier versions, folds are kept if they cannot be resumed.
    for fold in ("fold-1", "fold-2"):
        results = json.loads((out / fold / "results.json").read_text())
        del results["fold"]
        (out / fold / "results.json").write_text(json.dumps(results))
    shutil.rmtree(out / "fold-1" / "checkpoints")
    monkeypatch.setattr(cross_validation, "train_table", recording)
    assert cross_validate(molecules, ["size"], out, 3, settings=TINY, resume=True) == found
    assert trained == ["fold-2"]


def test_folds_are_resumed_only_with_the_targets_and_values_that_they_were_trained_on(tmp_path):
    """The configuration, files and lines are the same."""
    table, labels = tmp_path / "in.csv", [[number % 2, number % 3 > 0] for number in range(40)]

    def write(labels):
        rows = [[s, int(a), int(b)] for s, (a, b) in zip(some_smiles(40), labels, strict=True)]
        write_csv(table, ["smiles", "a", "b"], rows)

    def resume(target):
        cross_validate(table, [target], tmp_path / "out", 2, settings=TINY, resume=True)

    write(labels)
    cross_validate(table, ["a"], tmp_path / "out", 2, settings=TINY, split_seed=0)
    resume("a")
    saved = (tmp_path / "out" / "out_of_fold.csv").read_bytes()
    write([[a, a] for a, _ in labels])  # other targets with the same values
    with pytest.raises(GrassError, match="--target"):
        resume("b")
    write([[1 - a, b] for a, b in labels])
    with pytest.raises(GrassError, match="fold-1 was trained with other targets, values"):
        resume("a")
    assert (tmp_path / "out" / "out_of_fold.csv").read_bytes() == saved


def test_classes_have_equal_shares_and_a_table_is_printed(molecules, tmp_path, capsys):
    arguments = [
        "train",
        str(molecules),
        "--target",
        "large",
        "--folds",
        "2",
        "--no-baseline",
        *SET,
    ]
    out = tmp_path / "out"
    assert main([*arguments, "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "mean ± std" in said.out and "auc" in said.out and "Fold 2 of 2" in said.err
    rows = read_csv(out / "out_of_fold.csv")
    shares = [sum(row["large"] == "1" for row in rows if row["fold"] == fold) for fold in "12"]
    assert abs(shares[0] - shares[1]) <= 1
    assert all(0 <= float(row["large_prob"]) <= 1 for row in rows)


def test_scaffolds_are_in_one_fold_and_not_in_training_and_validation(tmp_path):
    # Rings of ten sizes, with four chains each.
    smiles = [f"C1{'C' * ring}1{'C' * chain}O" for ring in range(2, 12) for chain in range(4)]
    path = write_csv(tmp_path / "in.csv", ["smiles", "y"], [[s, n] for n, s in enumerate(smiles)])
    out = tmp_path / "out"
    scaffolds = read_scaffolds(smiles, workers=1)
    cross_validate(path, ["y"], out, 2, split="scaffold", settings=TINY)
    for number in (1, 2):
        splits = splits_of(out / f"fold-{number}")
        places = {}
        for line, split in splits.items():
            places.setdefault(scaffolds[int(line) - 2], set()).add(split)
        assert all(len(found) == 1 for found in places.values())
        assert Counter(splits.values()) == {"train": 16, "val": 4, "test": 20}
    few = write_csv(tmp_path / "few.csv", ["smiles", "y"], [[smiles[n], n] for n in range(8)])
    with pytest.raises(GrassError, match="too few"):  # said before anything is trained
        cross_validate(few, ["y"], tmp_path / "few", 2, split="scaffold", settings=TINY)
    assert not (tmp_path / "few").exists()


def test_rare_classes_are_in_the_validation_rows_of_all_folds(tmp_path):
    def in_validation(labels, split):
        rows = zip(some_smiles(120), labels, strict=True)
        spec = TableSpec(("y",), split=split)
        read = read_rows(write_csv(tmp_path / "in.csv", ["smiles", "y"], rows), spec, 0)
        splits = FoldSplits(read, 5, spec, seed=0)
        found = [[n for n, own in splits.of_rows(f).items() if own == "val"] for f in range(5)]
        return [(sum(labels[n] for n in rows), len(rows)) for rows in found]

    rare = [int(n % 24 == 0) for n in range(120)]  # four of the 96 rows that are not tested on
    assert in_validation(rare, "random") == [(1, 11)] * 5
    even = [n % 2 for n in range(120)]
    assert in_validation(even, "stratified") == [(5, 10)] * 5
    # Without rare classes, random validation rows stay what they were.
    drawn = in_validation(even, "random")
    assert drawn != [(5, 10)] * 5 and all(count == 11 for _, count in drawn)


def test_repeated_molecules_without_rings_are_in_one_fold():
    groups = read_scaffolds(["CCO", "CCC", "OCC", "CCN", "C(O)C"], workers=1)
    found = group_folds(groups, 2)
    assert found[0] == found[2] == found[4] != found[1] == found[3]


def test_bad_rows_are_left_out_and_others_keep_their_line(molecules, tmp_path, caplog):
    lines = molecules.read_text().splitlines()[:31]
    lines.insert(3, "x,C(,1,1,a")
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(lines) + "\n")
    caplog.set_level("INFO", "grass_gnn")
    cross_validate(path, ["size"], tmp_path / "out", 2, settings=TINY)
    rows = read_csv(tmp_path / "out" / "out_of_fold.csv")
    assert len(rows) == 30 and "4" not in {row["line"] for row in rows}
    assert any("Skipped 1 unusable row" in sentence for sentence in caplog.messages)
    for row in rows:
        assert row["smiles"] == lines[int(row["line"]) - 1].split(",")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--folds", "1"], "--folds"),
        (["--folds", "100"], "80 rows are too few"),
        (["--folds", "3", "--split", "large"], "--split is random or scaffold"),
        (["--folds", "3", "--test", "test.csv"], "leave out --val and --test"),
        (["--folds", "3", "--resume"], "resume"),
    ],
)
def test_errors_are_one_sentence(molecules, tmp_path, capsys, arguments, words):
    table = [str(molecules), "--target", "size", "--out", str(tmp_path / "out")]
    assert main(["train", *table, *arguments]) in (1, 2)
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out" / "fold-1").exists()


@pytest.mark.parametrize("split", ["random", "scaffold"])
def test_folds_without_validation_rows_are_refused(split, molecules, tmp_path):
    given = {"split": split, "settings": TINY, "shares": (0.8, 0, 0.2)}
    with pytest.raises(GrassError, match="validation rows"):
        cross_validate(molecules, ["size"], tmp_path / "out", 2, **given)
    assert not (tmp_path / "out").exists()


def test_a_cross_validation_is_not_trained_over(folded, molecules, capsys):
    folder, _ = folded
    table = ["train", str(molecules), "--target", "size", "--out", str(folder)]
    assert main(table) == 1
    assert "cross-validation" in capsys.readouterr().err
    assert main(["train", "cluster", "--folds", "3"]) == 1
    assert "tables" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[]", "{}", '{"runs": 3}', '{"runs": ["../elsewhere"]}', "{"])
def test_a_damaged_summary_gives_a_one_sentence_error(text, tmp_path):
    (tmp_path / "cross_validation.json").write_text(text)
    with pytest.raises(GrassError, match=r"cross_validation\.json is damaged"):
        load_models([tmp_path])


def test_two_cannot_cross_validate_into_one_folder(molecules, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with (out / LOCK).open("w") as file:
        assert try_lock(file.fileno())
        with pytest.raises(GrassError, match="in use by"):
            cross_validate(molecules, ["size"], out, 2, settings=TINY)
    assert not (out / "folds.csv").exists()
