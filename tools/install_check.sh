#!/usr/bin/env bash
# Installs the package as a user would, without the development extras, and uses it on molecules:
# first from a built wheel, then from the repository. Takes about three minutes.
#   tools/install_check.sh [PYTHON]
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
bin="$work/venv/bin"
export GRASS_CACHE="$work/cache"  # the kernel is compiled from the sources in the wheel
unset PYTHONPATH

install() {
  "$bin/pip" install -qq --disable-pip-version-check -c "$root/constraints.txt" "$@"
}

use() {  # train, predict, report and serve in a new folder outside the repository
  mkdir "$work/$1" && cd "$work/$1"
  printf 'name,smiles\nethanol,CCO\naspirin,CC(=O)Oc1ccccc1C(=O)O\nwrong,C1CC\n' > new.csv
  "$bin/grass-gnn" --version
  "$bin/grass-gnn" train example --epochs 1 --out run \
    --set model.layers=2 --set model.dim=8 --set evaluation.rewirings=2
  "$bin/grass-gnn" predict run new.csv -o out.csv --rewirings 2
  test "$(wc -l < out.csv)" = 4
  grep -q '^aspirin,.*,-\?[0-9.]\+,' out.csv
  "$bin/grass-gnn" report run -o report.html
  "$bin/grass-gnn" serve run --port 0 > serve.txt 2>&1 &
  local server=$! address="" found=1
  for _ in $(seq 180); do
    address="$(grep -o 'http://[0-9.:]*[0-9]' serve.txt || true)"
    if [ -n "$address" ]; then
      "$bin/python" -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=60)' "$address"
      found=0
      break
    fi
    sleep 1
  done
  kill "$server" && wait "$server" || true
  [ "$found" = 0 ] || { cat serve.txt; exit 1; }
  echo "Installed $1: train, predict, report and serve work."
}

"${1:-python3}" -m venv "$work/venv"
install torch
"$bin/pip" wheel -qq --disable-pip-version-check --no-deps -w "$work/dist" "$root"
install "$(echo "$work"/dist/grass_gnn-*.whl)[chem,serve]"
use from-wheel
"$bin/pip" uninstall -qq -y grass-gnn
install "$root[chem,serve]"
use from-repository
