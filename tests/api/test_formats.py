import gzip
import zipfile

import pytest
from small_tables import TINY, read_csv, write_csv

from grass_gnn.api.fitting import fit_table
from grass_gnn.api.prediction import predict_table
from grass_gnn.data.tables import formats
from grass_gnn.data.tables.files import is_table, open_table
from grass_gnn.data.tables.molecules import MoleculeReader
from grass_gnn.data.tables.parsing import MolBlockReader, UnreadableMolecule
from grass_gnn.data.tables.schema import find_molecules, find_smiles
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.trained import load_model

Chem = pytest.importorskip("rdkit.Chem")
openpyxl = pytest.importorskip("openpyxl")


def workbook(path, rows):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def sdf(path, molecules):
    """Write molecules, each a SMILES with its name and properties."""
    text = ""
    for smiles, name, properties in molecules:
        mol = Chem.MolFromSmiles(smiles)
        mol.SetProp("_Name", name)
        text += Chem.MolToMolBlock(mol)
        text += "".join(f">  <{key}>  (1)\n{value}\n\n" for key, value in properties.items())
        text += "$$$$\n"
    path.write_text(text)
    return path


def test_excel(tmp_path):
    path = workbook(
        tmp_path / "own.xlsx",
        [["Canonical SMILES", "y", None], ["CCO", 1.0, None], [None, None], ["CC", -0.5, "extra"]],
    )
    assert is_table(path)
    table = open_table(path)
    assert table.columns == ["Canonical SMILES", "y"]
    rows = list(table)
    assert rows[0][:2] == (2, ["CCO", "1"])
    assert rows[1].problem == "the row is empty"
    assert rows[2].cells == ["CC", "-0.5"] and "header" in rows[2].problem
    assert find_molecules(table.columns) == 0
    workbook(tmp_path / "empty.xlsx", [])
    with pytest.raises(GrassError, match="header"):
        open_table(tmp_path / "empty.xlsx")


def test_texts_in_parquet_that_were_written_as_bytes(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    cells = arrow.array([b"CCO", None, "Äther".encode(), b"CCO"], arrow.binary())
    columns = {"smiles": cells, "again": cells.dictionary_encode()}
    parquet.write_table(arrow.table(columns), tmp_path / "own.parquet")
    found = [row.cells for row in open_table(tmp_path / "own.parquet")]
    assert found == [["CCO"] * 2, ["", ""], ["Äther"] * 2, ["CCO"] * 2]


def test_hostile_workbooks_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "own.xlsx"
    path.write_bytes(b"no archive")
    with pytest.raises(GrassError, match="not an Excel file"):
        open_table(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", '<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>')
    with pytest.raises(GrassError, match="entities"):
        open_table(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", "<x/>")
    with pytest.raises(GrassError, match="not a readable Excel file"):
        open_table(path)
    monkeypatch.setattr(formats, "_LARGEST_SHEET", 10_000)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", "0" * 20_000)
    with pytest.raises(GrassError, match="unpacks to more"):
        open_table(path)


def test_sdf(tmp_path):
    path = sdf(
        tmp_path / "own.sdf",
        [
            ("C[C@H](N)C(=O)O", "alanine", {"logS": 0.2}),
            ("[Na+].[Cl-]", "salt", {"logS": "1.1", "note": "two\nlines"}),
        ],
    )
    broken = path.read_text() + "odd\n\n\n  x\n$$$$\nodd\n  made\n\n  9  9\nM  END\n$$$$\n"
    path.write_text(broken.replace("\n", "\r\n"))
    table = open_table(path)
    assert table.columns == ["smiles", "name", "logS", "note"]
    rows = list(table)
    assert rows[0].cells == ["C[C@H](N)C(=O)O", "alanine", "0.2", ""]
    assert rows[1].cells == ["[Cl-].[Na+]", "salt", "1.1", "two\nlines"]
    assert [bool(row.problem) for row in rows] == [False, False, True, True]
    packed = tmp_path / "own.sdf.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert [row.cells for row in open_table(packed)] == [row.cells for row in rows]


def test_hostile_structures_cost_one_row(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "_LONGEST_ENTRY", 2000)
    path = sdf(tmp_path / "own.sdf", [("CCO", "ethanol", {"y": 1}), ("CC", "", {"y": "x" * 3000})])
    rows = list(open_table(path))
    assert rows[0].cells[0] == "CCO" and "characters" in rows[1].problem
    chain = Chem.MolToMolBlock(Chem.MolFromSmiles("C" * 20))
    assert "atoms" in MolBlockReader(max_atoms=10).try_read(chain)


def test_smi(tmp_path):
    path = tmp_path / "own.smi"
    path.write_text("CCO ethanol\n\nC\nCC |$a;b$| my ethane\n")
    table = open_table(path)
    assert table.columns == ["smiles", "name"]
    found = [["CCO", "ethanol"], ["C", ""], ["CC |$a;b$|", "my ethane"]]
    assert [row.cells for row in table] == found
    path.write_text("SMILES\tname\ty\nCCO\tethanol\t1.5\n")
    table = open_table(path)
    assert table.columns == ["SMILES", "name", "y"]
    assert [row.cells for row in table] == [["CCO", "ethanol", "1.5"]]
    path.write_text("SMILES\tname\ty\nCCO\tmy ethanol\t1.5\n\nCC |$a;b$|\t\t2\nC\tx\t1\tmore\n")
    rows = list(open_table(path))
    assert [row.cells for row in rows[:2]] == [
        ["CCO", "my ethanol", "1.5"],
        ["CC |$a;b$|", "", "2"],
    ]
    assert [bool(row.problem) for row in rows] == [False, False, True]


def test_inchi():
    reader = MoleculeReader(identity=True)
    assert reader("InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3").canonical == "CCO"
    for text in ("InChI=1S/nonsense", "InChI=", "InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3 more"):
        with pytest.raises(UnreadableMolecule):
            reader(text)
    with pytest.raises(UnreadableMolecule, match="atoms"):
        MoleculeReader(max_atoms=2)("InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3")


@pytest.mark.parametrize(
    ("columns", "place"),
    [
        (["id", "Canonical SMILES"], 1),
        (["InChI", "Isomeric_Smiles"], 1),
        (["name", "Standard InChI", "InChI Key"], 1),
        (["name", "Washed SMILES"], 1),
        (["smiles of acid", "smiles of base"], None),
        (["Molecule", "SMILES"], 1),
        (["Molecule", "InChI"], 1),
        (["id", "Molecule"], 1),
        (["name", "y"], None),
    ],
)
def test_columns_of_molecules_are_found(columns, place):
    assert find_molecules(columns) == place


def test_train_on_sdf_and_predict_excel(tmp_path):
    chains = [("C" * (n % 12 + 1) + "O" * (n % 2), f"m{n}", {"y": n % 12}) for n in range(30)]
    fit_table(sdf(tmp_path / "own.sdf", chains), "y", tmp_path / "run", settings=TINY)
    new = workbook(tmp_path / "new.xlsx", [["smiles", "id"], ["CCO", 7], ["C1CC", 8]])
    model, out = load_model(tmp_path / "run"), tmp_path / "out.csv"
    assert predict_table(model, new, out).predicted == 1
    assert [row["id"] for row in read_csv(out)] == ["7", "8"]
    with pytest.raises(GrassError, match="CSV"):
        predict_table(model, new, tmp_path / "out.xlsx")


def test_a_table_of_inchi_is_read(tmp_path):
    from grass_gnn.data.tables.dataset import read_tables
    from grass_gnn.data.tables.spec import TableSpec

    found = [Chem.MolToInchi(Chem.MolFromSmiles("C" * (n + 1))) for n in range(12)]
    path = write_csv(
        tmp_path / "own.csv", ["InChI", "y"], [[text, n] for n, text in enumerate(found)]
    )
    data = read_tables(path, TableSpec(("y",), split="scaffold"), workers=0)
    assert data.schema.smiles == "InChI" and not data.skipped


def test_further_sheets_and_columns_of_smiles_are_mentioned(tmp_path, caplog):
    path = workbook(tmp_path / "own.xlsx", [["Canonical SMILES", "Isomeric SMILES"], ["CC", "CC"]])
    assert find_smiles(open_table(path), None) == "Canonical SMILES"
    assert "'Isomeric SMILES'" in caplog.text and "2 sheets" not in caplog.text
    book = openpyxl.load_workbook(path)
    book.create_sheet("more")
    book.save(path)
    open_table(path)
    assert "2 sheets" in caplog.text
