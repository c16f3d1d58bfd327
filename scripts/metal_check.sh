#!/usr/bin/env bash
# Runs the Metal kernels on this machine's CPU: builds the bench (tests/metal_on_cpu, clang 19), then the conformance of
# every kernel in four schedules, all detectors, the seeded faults that prove the detectors, and the counters' checks.
#
#   scripts/metal_check.sh                  what CI runs: of the planned kernels each case on one GPU in one dtype
#   scripts/metal_check.sh --counts FILE    and the table of counted work at N = 200 and 2048, as JSON (minutes); the
#                                           page of it: tests/metal_on_cpu/counts_table.py
#
# METAL_CHECK_JOBS sets how many programs run at once (2); each may take 20 minutes. Nothing here needs Apple hardware.
set -euo pipefail

usage() {
  sed -n '2,9s/^# \{0,1\}//p' "$0"
}

counts=""
while [ $# -gt 0 ]; do
  case "$1" in
    --counts)
      [ $# -ge 2 ] || { echo "metal_check.sh: --counts needs a file" >&2; exit 2; }
      counts=$(realpath -m "$2")
      shift 2
      ;;
    -h | --help) usage; exit 0 ;;
    *) echo "metal_check.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
  esac
done

root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/metal
jobs=${METAL_CHECK_JOBS:-2}
for tool in clang++-19 llvm-symbolizer-19 cmake python3; do
  command -v "$tool" >/dev/null || { echo "metal_check.sh: $tool is missing (scripts/setup.sh test)" >&2; exit 2; }
done

echo "Metal bench: building in $build"
# A folder that another generator made cannot be used again.
grep -qsF 'CMAKE_GENERATOR:INTERNAL=Ninja' "$build/CMakeCache.txt" || rm -rf "$build"
mkdir -p "$build"
if ! { cmake -S "$root/tests/metal_on_cpu" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=clang++-19 &&
       cmake --build "$build" -j "$jobs"; } >"$build/build.log" 2>&1; then
  cat "$build/build.log" >&2
  exit 1
fi

# One line a program: its name and arguments.
programs=(
  "$build/metal_plan_conformance --quick --shard 0/2"
  "$build/metal_plan_conformance --quick --shard 1/2"
  "$build/metal_plan_counts${counts:+ --json $counts}"
  "$build/metal_plan_faults"
  "$build/metal_faults"
  "$build/metal_conformance 2"
  "$build/metal_conformance 1"
  "$build/metal_features"
  "$build/metal_counts"
  "python3 $root/tests/metal_on_cpu/flatten_test.py"
  "python3 $root/tests/metal_on_cpu/counts_table.py --check"
)
logs=$build/logs
rm -rf "$logs"
mkdir -p "$logs"
for i in "${!programs[@]}"; do
  printf '%s\t%s\n' "$logs/$i" "${programs[$i]}"
done | xargs -P "$jobs" -d '\n' -I LINE bash -c '
  log=${1%%$(printf "\t")*}
  command=${1#*$(printf "\t")}
  start=$SECONDS
  if timeout 1200 $command >"$log" 2>&1; then :; else echo "exit status $?" >>"$log"; fi
  echo "${command//$2\//} took $((SECONDS - start)) s" >"$log.time"
' _ LINE "$build"

passed=0 failed=0 skipped=0
for i in "${!programs[@]}"; do
  cat "$logs/$i.time"
  grep -v ' passed, .* failed, .* skipped$' "$logs/$i" || true
  summary=$(grep ' passed, .* failed, .* skipped$' "$logs/$i" | tail -n 1 || true)
  if [ -z "$summary" ] || grep -q '^exit status' "$logs/$i" && [ "${summary#* 0 failed}" != "$summary" ]; then
    echo "FAILED ${programs[$i]}: ended without a verdict"
    failed=$((failed + 1))
  fi
  if [ -n "$summary" ]; then
    read -r p f s < <(echo "$summary" | sed -E 's/([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped/\1 \2 \3/')
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  fi
done
[ -z "$counts" ] || echo "counts written to $counts"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
