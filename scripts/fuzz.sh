#!/usr/bin/env bash
# Builds the fuzz targets (clang 19, address and undefined-behaviour sanitizers) and runs each for SECONDS (default 60):
#
#   scripts/fuzz.sh [SECONDS [TARGET...]]      targets: attention npy safetensors
#
# A run begins with the inputs that once failed (tests/fuzz/regressions) and the seed corpus (tests/fuzz/make_seeds.py),
# and goes on from what earlier runs found (build/fuzz/corpus). Inputs that fail are kept in build/fuzz/artifacts; run
# one alone with TILEWISE_FUZZ_VERBOSE=1 build/fuzz/bin/TARGET_fuzzer FILE, which also describes an attention problem.
# Ends with `N passed, N failed` and exits 1 when a target failed.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
if ! [[ $seconds =~ ^[0-9]+$ ]]; then
  echo "usage: scripts/fuzz.sh [SECONDS [TARGET...]]" >&2
  exit 2
fi
targets=("${@:2}")
if [ ${#targets[@]} -eq 0 ]; then targets=(npy safetensors attention); fi
known=" attention npy safetensors "
for target in "${targets[@]}"; do
  if [[ $known != *" $target "* ]]; then
    echo "scripts/fuzz.sh: no target '$target'; there are:$known" >&2
    exit 2
  fi
done

build=build/fuzz
mkdir -p build
cmake --preset fuzz >"$build.configure.log" 2>&1 || { cat "$build.configure.log" >&2; exit 1; }
cmake --build $build --parallel "$(nproc)" --target "${targets[@]/%/_fuzzer}"
python3 tests/fuzz/make_seeds.py $build/seeds

# A kernel that a caller forces, or a limit on threads, must not decide what is fuzzed.
unset TILEWISE_KERNEL TILEWISE_NUM_THREADS
export UBSAN_OPTIONS=print_stacktrace=1

passed=0
failed=0
for target in "${targets[@]}"; do
  artifacts=$build/artifacts/$target
  corpus=$build/corpus/$target
  log=$build/$target.log
  mkdir -p "$artifacts" "$corpus" "tests/fuzz/regressions/$target"
  options=(-timeout=60 -rss_limit_mb=4096 -print_final_stats=1 "-artifact_prefix=$artifacts/" -max_len=4096)
  if [ -f "tests/fuzz/$target.dict" ]; then options+=("-dict=tests/fuzz/$target.dict"); fi

  echo "== $target: $seconds s"
  if "$build/bin/${target}_fuzzer" "${options[@]}" "-max_total_time=$seconds" \
      "$corpus" "$build/seeds/$target" "tests/fuzz/regressions/$target" >"$log" 2>&1; then
    passed=$((passed + 1))
    echo "   passed"
  else
    failed=$((failed + 1))
    echo "   FAILED; the whole log is $log"
    grep -E "FUZZ FAILURE|ERROR: |SUMMARY|runtime error|Test unit written" "$log" | head -n 20 | sed 's/^/   /' || true
  fi
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  echo "   ${executions:-unknown} executions, $(find "$corpus" -type f | wc -l) inputs in the corpus"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
