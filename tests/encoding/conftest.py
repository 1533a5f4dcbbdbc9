import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))  # for graph_cases

# A busy machine may take its time over an example.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
