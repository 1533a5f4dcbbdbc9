"""Every example runs and does what it says."""

import importlib.util
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_parts_in_your_own_model_learns_to_see_triangles():
    assert load("parts_in_your_own_model").main(epochs=10) > 0.85


def test_preset_on_a_batch_is_rewired_anew():
    first, second = load("preset_on_a_batch").main()
    assert first.shape == (3, 1)
    assert not first.equal(second)
