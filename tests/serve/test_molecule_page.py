"""The page of a model on molecules: what it says is what the command line says."""

import base64
import csv
import io
import re

import pytest

from grass_gnn import load_model
from grass_gnn.api.prediction import predict_table
from grass_gnn.data.batch import ADDED_EDGE
from grass_gnn.data.tables.molecules import MoleculeReader
from grass_gnn.serve import molecules as serve_molecules
from grass_gnn.serve.molecules import SCALE
from grass_gnn.uncertainty.ensembles import load_models

HOSTILE = [
    *("C(", "[" * 3000, "C" * 30_000, "C1CC%99", "[U+9999]", "é☃", "\x00C", "C\x00", "%00"),
    *("N(C)(C)(C)(C)C", "C" * 301, "*", "<script>alert(1)</script>", "' OR 1=1", "[2H][2H]"),
]


def drawing(answer):
    return base64.b64decode(answer["picture"].partition(",")[2]).decode()


def rows_of(answer):
    return list(csv.DictReader(io.StringIO(answer.json()["csv"])))


def test_the_page_describes_its_model_and_loads_nothing_from_elsewhere(run, open_page):
    client = open_page(run)
    page = client.get("/").text
    for fact in ("MAE 0.4321", "solubility.csv", "logS", "× 2.5 for logS", "&lt;script&gt;"):
        assert fact in page
    assert "secret" not in page  # a name says enough, a path too much
    scripts = [f'<script src="/{name}.js" defer>' for name in ("page", "molecules")]
    assert re.findall(r"<script[^>]*>", page) == scripts
    assert not re.search(r"\son\w+=|\sstyle=|<style", page)
    for path in ("/", "/page.css", "/page.js", "/molecules.js"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert not re.search(r"https?:|innerHTML|@import|eval\(", answer.text)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_a_table_gives_what_predict_writes(run, client, tmp_path):
    text = '\ufeffid,smiles\r\na,CCCCCC\r\n"=1+1",c1ccccc1CCO\r\nbad,C(\r\n\r\nlast,CCCCC\r\n'
    source = tmp_path / "in.csv"
    source.write_text(text, "utf-8", newline="")
    predict_table(load_models([run]), source, tmp_path / "out.csv", rewirings=3, deterministic=True)
    answer = client.post("/predict?as=table", content=text.encode())
    assert answer.status_code == 200
    assert answer.json()["csv"] == (tmp_path / "out.csv").read_text("utf-8")
    assert "'=1+1" in answer.json()["csv"]
    shown = answer.json()["rows"]
    assert [row["name"] for row in shown] == ["a", "=1+1", "bad", "", "last"]
    assert shown[2]["error"] == "the SMILES is not valid" and not shown[2]["values"]
    assert shown[3]["error"] == "the row is empty"
    written = rows_of(answer)
    for row, cells in zip(shown, written, strict=True):
        if row["values"]:
            (one,) = row["values"]
            assert float(one["value"].replace("−", "-")) == pytest.approx(
                float(cells["logS_pred"]), abs=float(one["spread"]) / 10
            )
            assert float(one["spread"]) == pytest.approx(float(cells["logS_std"]), rel=0.06)
    assert [row["warning"] for row in shown] == [*("", "unlike the training molecules", "", "", "")]


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252"])
def test_tables_of_other_programs_keep_their_letters(client, encoding):
    text = "Säure,smiles\r\nEssigsäure,CC(=O)O\r\n"
    answer = client.post("/predict?as=table", content=text.encode(encoding))
    (row,) = rows_of(answer)
    assert row["Säure"] == "Essigsäure" and row["logS_pred"]


@pytest.mark.parametrize("text", ["CCO ethanol\n\nC#N  hydrogen cyanide", "smiles\nCCO\nC#N"])
def test_pasted_lines_may_have_names_or_a_header(client, text):
    shown = client.post("/predict", content=text).json()["rows"]
    assert [row["smiles"] for row in shown] == ["CCO", "C#N"]
    assert shown[1]["name"] == ("hydrogen cyanide" if "hydrogen" in text else "")
    assert all(row["values"] for row in shown)


def test_single_rewirings_belong_to_the_prediction_and_to_the_picture(run, open_page):
    client = open_page(run)
    (row,) = rows_of(client.post("/predict", content="CC(=O)Oc1ccccc1"))
    whole = client.post("/look", json={"smiles": "CC(=O)Oc1ccccc1"}).json()
    values = [float(sample[0]["value"].replace("−", "-")) for sample in whole["samples"]]
    assert len(set(values)) == 3
    assert sum(values) / 3 == pytest.approx(float(row["logS_pred"]), rel=2e-4)
    assert "<line" not in drawing(whole)
    one = client.post("/look", json={"smiles": "CC(=O)Oc1ccccc1", "rewiring": 0}).json()
    data = MoleculeReader(canonical_order=True)("CC(=O)Oc1ccccc1").data
    added = load_model(run).explain(data, 1, deterministic=True).pairs(ADDED_EDGE)
    assert drawing(one).count("<line") == len(added) > 0
    other = client.post("/look", json={"smiles": "CC(=O)Oc1ccccc1", "rewiring": 1}).json()
    assert drawing(other) != drawing(one)
    again = client.post("/look", json={"smiles": "c1ccccc1OC(C)=O", "rewiring": 0}).json()
    assert again["caption"] == one["caption"]


@pytest.mark.parametrize("smiles", ["CCOC(=O)N", "C=C", "c1ccccc1CCO"])
def test_bonds_are_coloured_by_their_attention(run, open_page, smiles):
    """One scale for all molecules: the colour of a bond follows from its attention alone."""
    svg = drawing(open_page(run).post("/look", json={"smiles": smiles, "rewiring": 0}).json())
    data = MoleculeReader(canonical_order=True)(smiles).data
    pairs = load_model(run).explain(data, 1, deterministic=True).pairs()
    shares = [min(attention / SCALE, 1.0) for attention in pairs.values()]
    found = {(int(g, 16), int(b, 16)) for g, b in re.findall("#FF([0-9A-F]{2})([0-9A-F]{2})", svg)}
    for share in shares:
        green, blue = 255 * (0.96 - 0.3 * share), 255 * (0.8 - 0.7 * share)
        assert any(abs(g - green) < 2 and abs(b - blue) < 2 for g, b in found)


def test_atoms_are_coloured_by_their_contributions(run, open_page):
    answer = open_page(run).post("/look", json={"smiles": "CCOC(=O)N"}).json()
    data = MoleculeReader(canonical_order=True)("CCOC(=O)N").data
    values = load_model(run).attribute(data, 3).of_output(0)
    text = re.fullmatch(r"Contributions of atoms to logS: (\S+) to (\S+)\.", answer["caption"])
    low, high = text.groups()
    assert float(low.replace("−", "-")) == pytest.approx(min(values), abs=0.006)
    assert float(high.replace("−", "-")) == pytest.approx(max(values), abs=0.006)
    largest = max(values, key=abs)
    deepest = "#FFA819" if largest > 0 else "#3A82C4"  # the ends of the scale
    assert deepest in drawing(answer)


def test_large_molecules_show_attention_instead(run, open_page, monkeypatch):
    """Contributions take time that grows with the square of the number of atoms."""
    client = open_page(run)
    monkeypatch.setattr(serve_molecules, "_MASKED_ATOMS", 30)
    small, large = (client.post("/look", json={"smiles": "C" * n}).json() for n in (5, 6))
    assert small["caption"].startswith("Contributions of atoms")
    assert large["caption"].startswith("Attention per bond") and len(large["samples"]) == 3


def test_plain_structures_need_no_attention(client):
    answer = client.post("/look", json={"smiles": "CCOC(=O)N", "plain": True}).json()
    assert set(answer) == {"picture"} and "#FFF" not in drawing(answer).replace("#FFFFFF", "")
    assert client.post("/look", json={"smiles": "C(", "plain": True}).status_code == 400


def test_calibrated_predictions_have_intervals(write_run, client, open_page):
    answer = client.post("/predict", content="CCO").json()
    (value,) = answer["rows"][0]["values"]
    low, high = (float(x) for x in value["interval"].replace("−", "-").split(" to "))
    assert answer["calibrated"] and high - low == pytest.approx(
        2 * 1.645 * float(value["spread"]), rel=0.06
    )
    answer = open_page(write_run("uncalibrated")).post("/predict", content="CCO").json()
    assert not answer["calibrated"] and not answer["rows"][0]["values"][0]["interval"]


def test_classes_have_names_and_probabilities(write_run, open_page):
    task = {
        "task.kind": "classification",
        "task.outputs": 3,
        "task.loss": "cross-entropy",
        "task.metric": "accuracy",
    }
    folder = write_run(targets=["kind"], task=task, classes=["low", "<b>", "high"])
    client = open_page(folder)
    (row,) = client.post("/predict", content="CCO").json()["rows"]
    assert [one["name"] for one in row["values"]] == ["low", "<b>", "high"]
    shares = [one["share"] for one in row["values"]]
    assert sum(shares) == pytest.approx(1, abs=1e-5)
    assert row["headline"] == ["low", "<b>", "high"][shares.index(max(shares))]
    look = client.post("/look", json={"smiles": "CCO"}).json()
    assert len(look["headlines"]) == 3
    page = client.get("/").text
    assert "&lt;b&gt;" in page and "<b>" not in page


def test_several_targets_and_two_classes_are_named(write_run, open_page):
    several = open_page(write_run("several", targets=["logS", "logP"]))
    (row,) = several.post("/predict", content="CCO").json()["rows"]
    assert [one["name"] for one in row["values"]] == ["logS", "logP"]
    task = {"task.kind": "binary", "task.loss": "bce", "task.metric": "auc"}
    two = open_page(write_run("two", targets=["toxic"], task=task, classes=["no", "yes"]))
    (row,) = two.post("/predict", content="CCO").json()["rows"]
    assert row["values"][0]["name"] == "toxic: yes"
    assert 0 < row["values"][0]["share"] < 1


def test_an_ensemble_is_averaged(write_run, open_page):
    folders = [write_run("a"), write_run("b", seed=1)]
    client = open_page(*folders)
    (row,) = rows_of(client.post("/predict", content="CCO"))
    alone = [
        float(rows_of(open_page(folder).post("/predict", content="CCO"))[0]["logS_pred"])
        for folder in folders
    ]
    assert float(row["logS_pred"]) == pytest.approx(sum(alone) / 2, abs=1e-5)
    assert float(row["logS_std_models"]) > 0
    assert "2 models" in client.get("/").text
    samples = client.post("/look", json={"smiles": "CCO"}).json()["samples"]
    values = [float(sample[0]["value"].replace("−", "-")) for sample in samples]
    assert sum(values) / 3 == pytest.approx(float(row["logS_pred"]), rel=2e-4)


def test_descriptors_must_be_in_the_table(write_run, open_page):
    client = open_page(write_run(descriptors=["pH"]))
    answer = client.post("/predict", content="CCO")
    assert answer.status_code == 400
    assert "besides the SMILES: pH" in answer.json()["error"]
    rows = client.post("/predict", content="smiles,pH\nCCO,7\nCCO,2\nCCO,acid").json()["rows"]
    assert rows[0]["values"] != rows[1]["values"]
    assert "'acid' is not a number" in rows[2]["error"]
    one = {"smiles": "CCO", "descriptors": ["7"]}
    assert client.post("/look", json=one).status_code == 200
    assert client.post("/look", json={"smiles": "CCO"}).status_code == 400


def test_strange_texts_get_a_reason_and_stay_text(run, open_page):
    client = open_page(run)
    answer = client.post("/predict", content="\n".join(f"{s} name" for s in HOSTILE))
    assert answer.status_code == 200
    rows = answer.json()["rows"]
    assert len(rows) == len(HOSTILE)
    assert all(bool(row["error"]) != bool(row["values"]) for row in rows)
    assert {row["line"] for row in rows if row["error"]} >= {1, 2, 3, 4, 6, 9, 10, 11, 13, 14}
    assert all(len(row["smiles"]) <= 300 for row in rows)
    assert answer.headers["content-type"] == "application/json"
    for smiles in ("C(", "C" * 301, ""):
        refused = client.post("/look", json={"smiles": smiles})
        assert refused.status_code == 400
        assert refused.json()["error"].startswith("The molecule cannot be read: ")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "There are no molecules to predict."),
        (b"\x1f\x8b\x08\x00", "The page accepts tables as plain text: CSV or TSV."),
        (b"a,b\n1,2", "The table has no column 'smiles'; its columns are 'a', 'b'."),
        (b",,\n1,2,3", "The table has no header in its first line."),
    ],
)
def test_invalid_tables_give_a_clear_error(client, body, sentence):
    answer = client.post("/predict?as=table", content=body)
    assert answer.json()["error"] == sentence
    assert answer.status_code == 400
