"""The short version of ``make fuzz``: a few hundred inputs of every target."""

import signal

import pytest

pytest.importorskip("rdkit")
pytest.importorskip("pyarrow")

from fuzz.engines import at_random
from fuzz.harness import HangError
from fuzz.targets import TARGETS

INPUTS = {
    "SMILES tables (predict)": 60,
    "run folders": 100,
    "packed files": 100,
    "SMILES structures": 40,
    "nested JSON and TOML": 40,
    "Parquet expansion": 30,
    "special files": 15,
    "Excel, SDF, SMI and InChI": 60,
}


@pytest.fixture(autouse=True)
def small_and_bounded(monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: object) -> None:
        raise HangError("an input takes too long")

    monkeypatch.setenv("GRASS_OPS", "reference")
    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_gives_a_value_or_a_clear_error(name: str) -> None:
    tally = at_random(TARGETS[name], INPUTS.get(name, 250), variants=4)
    assert not tally.findings, "\n".join(tally.findings.values())
    assert tally.inputs >= 0.9 * INPUTS.get(name, 250)
    assert tally.past >= 0.3 * tally.inputs
