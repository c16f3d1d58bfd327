#!/usr/bin/env bash
# From a fresh Debian, Ubuntu or macOS machine to exact attention on a real model's inputs: sets up, builds a release,
# runs it on examples/data, explains one problem, times the founding grid and writes plots/founding.{svg,png}.
# Asks nothing, can be run again, needs no torch. Takes a few minutes; the founding grid alone about two.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

heading() { printf '\n== %s\n' "$*"; }
tilewise=build/release/bin/tilewise

heading "1. Install what is missing"
bash scripts/setup.sh demo

heading "2. Build the library and the command"
cmake --preset release >/dev/null
cmake --build --preset release
"$tilewise" info

heading "3. A real model's attention: all-MiniLM-L6-v2 on four sentences, compared with the model's own result"
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
for input in examples/data/*.safetensors; do
  echo "-- $input"
  "$tilewise" run --input "$input" --output "$results/o.safetensors" --compare expected_o --tolerance 1e-5
done

heading "4. Which kernel a problem gets, and why"
"$tilewise" explain --q-shape 1,8,2048,64 --kv-shape 1,2,2048,64 --causal

heading "5. The founding grid: every rung of the ladder beside the kernels, one thread"
mkdir -p plots
"$tilewise" bench --grid founding --json plots/founding.json

heading "6. The plot"
.venv/bin/python bench/plot.py plots/founding.json --output plots/founding
ls -l plots/founding.svg plots/founding.png
