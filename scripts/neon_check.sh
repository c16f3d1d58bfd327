#!/usr/bin/env bash
# The NEON kernels on an x86 machine: cross build (preset aarch64), then under qemu-user as a Cortex-A76 the tests of the
# micro-kernels and a selection of the conformance cases. Usage: scripts/neon_check.sh [FAMILY...]
# (families of `tilewise check`; `all` runs every quick case, which takes long).
# Ends with `N passed, N failed, N skipped` and exits 1 when something failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

families=("$@")
if ((${#families[@]} == 0)); then families=(sinks softcap band); fi
if [[ ${families[*]} == all ]]; then families=(); fi

for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
  if ! command -v $tool >/dev/null; then
    echo "skipped: $tool is not installed (scripts/setup.sh test)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
  fi
done

build=build/aarch64
mkdir -p build
cmake --preset aarch64 >$build.log 2>&1 || { cat $build.log >&2; exit 1; }
cmake --build $build --parallel "$(nproc)"
emulated() { timeout 900 qemu-aarch64 -cpu cortex-a76 -L /usr/aarch64-linux-gnu "$@"; }

unset TILEWISE_KERNEL TILEWISE_NUM_THREADS
passed=0 failed=0 skipped=0
# The number before or after a word in the last lines of a log; 0 when the word is not there.
gtest_count() { sed -n "s/^\[  $1  *\] \([0-9]*\) tests\{0,1\}[.,].*/\1/p" "$2" | head -n 1; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The random problems of cpu_random_problems_test are left out: the emulator takes an hour over them.
test=$build/bin/cpu_micro_test
echo "== ${test##*/}"
status=0
emulated "$test" --gtest_brief=1 >"$log" 2>&1 || status=$?
# When all pass nothing is left to print, and grep says so by its status; what counts is read below.
grep -vE '^\[ *(PASSED|=+) *\]|^Running main' "$log" || true
good=$(gtest_count PASSED "$log") bad=$(gtest_count FAILED "$log") left=$(gtest_count SKIPPED "$log")
passed=$((passed + ${good:-0})) failed=$((failed + ${bad:-0})) skipped=$((skipped + ${left:-0}))
if ((status != 0 && ${bad:-0} == 0)) || ((${good:-0} + ${bad:-0} + ${left:-0} == 0)); then
  echo "${test##*/} ended with exit code $status"
  failed=$((failed + 1))
fi

echo "== conformance: cpu.neon, families ${families[*]:-all}"
status=0
emulated "$build/bin/check_runner" cpu.neon "${families[@]}" >"$log" 2>&1 || status=$?
cat "$log"
if read -r good bad left < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$log"); then
  passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + left))
fi
if ((status != 0 && ${bad:-0} == 0)); then
  echo "check_runner ended with exit code $status"
  failed=$((failed + 1))
fi

echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
