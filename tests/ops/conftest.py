import pytest
import torch

from grass_gnn.ops import build


def pytest_configure() -> None:
    """Compile before any test is timed."""
    build.available()


@pytest.fixture
def three_threads():
    """More threads than many machines have: only the division of work matters."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)
