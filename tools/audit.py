"""Look for known vulnerabilities in the locked packages, with pip-audit."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements.lock"


def locked_packages(text: str) -> list[str]:
    """``name==version`` of each package, without local build tags (+cpu), which databases lack."""
    return re.findall(r"^([\w.-]+==[^\s+\\]+)", text, flags=re.MULTILINE)


def verdict(answer: str, errors: str) -> tuple[str, int]:
    """Summary of what pip-audit found, and the exit code."""
    try:
        packages = json.loads(answer)["dependencies"]
    except (ValueError, KeyError):
        reason = (errors.strip().splitlines() or ["no answer"])[-1]
        return f"pip-audit could not reach its service, nothing was audited: {reason}", 2
    asked = [package for package in packages if "skip_reason" not in package]
    found = [(p["name"], p["version"], v["id"]) for p in asked for v in p["vulns"]]
    if not asked:  # pip-audit reports success if its service knows none of the packages
        return "pip-audit could not reach its service: nothing was audited.", 2
    left_out = f", {len(packages) - len(asked)} unknown to it" if len(asked) < len(packages) else ""
    if found:
        return "\n".join(f"{name} {version}: {known}" for name, version, known in found), 1
    return f"No known vulnerabilities in {len(asked)} packages{left_out}.", 0


def main() -> int:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(locked_packages(LOCK.read_text("utf-8"))))
        file.flush()
        command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps", "-r", file.name]
        done = subprocess.run(
            [*command, "--format=json", "--progress-spinner=off", "--timeout=15"],
            capture_output=True,
            text=True,
            check=False,
        )
    sentence, code = verdict(done.stdout, done.stderr)
    print(sentence)
    return code


if __name__ == "__main__":
    sys.exit(main())
