"""Write ``requirements.lock``: every package of the tested environment, with its hash.

pip resolves ``pyproject.toml`` and ``constraints.txt`` with the configured package index. The file
has names, versions and hashes for this platform and Python version.
"""

import json
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADER = """\
# The tested environment ({platform}, Python {python}), made by `make lock`.
# pip install --require-hashes -r requirements.lock && pip install --no-deps -e .
# torch is the CPU build: elsewhere, add the index of PyTorch's CPU packages (--extra-index-url).
"""


def main() -> None:
    wanted = [f"{ROOT}[dev]", "-c", str(ROOT / "constraints.txt")]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    done = subprocess.run(
        [*command, "--report", "-", *wanted], check=True, stdout=subprocess.PIPE, text=True
    )
    lines = []
    for package in json.loads(done.stdout)["install"]:
        about, source = package["metadata"], package["download_info"]
        if about["name"] != "grass-gnn":
            digest = source["archive_info"]["hashes"]["sha256"]
            lines.append(f"{about['name']}=={about['version']} \\\n    --hash=sha256:{digest}\n")
    system = f"{platform.system()} {platform.machine()}"
    version = ".".join(platform.python_version_tuple()[:2])
    text = HEADER.format(platform=system, python=version) + "".join(sorted(lines, key=str.lower))
    (ROOT / "requirements.lock").write_text(text, encoding="utf-8")
    print(f"requirements.lock: {len(lines)} packages")


if __name__ == "__main__":
    main()
