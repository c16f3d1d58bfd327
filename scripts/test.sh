#!/usr/bin/env bash
# Sets up, then proves everything that this machine can prove. Usage: scripts/test.sh [section...]
# Without arguments all sections run; a failing one does not stop the others. Ends with the line
# `N passed, N failed, N skipped` over all ctest runs and all checks that count by themselves, where a section that fails
# without a count adds one, and exits with 1 if anything failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

jobs=$(nproc 2>/dev/null || sysctl -n hw.ncpu)
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CMAKE_BUILD_PARALLEL_LEVEL=$jobs

# ctest on a build folder; remembers the counts. Tests that print their own failures need no repetition of passes.
run_ctest() { # build folder, further options of ctest
  local status=0  # sections run under set -e, and a failure must still be printed
  ctest --test-dir "$1" --parallel "$jobs" --timeout 600 --output-on-failure --quiet \
    --output-log "$reports/log" --output-junit "$reports/$section.xml" "${@:2}" >/dev/null 2>&1 || status=$?
  sed -n '/tests passed/,$p' "$reports/log"
  ((status == 0)) || grep -vE '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test +#[0-9]+: .* Passed)' "$reports/log"
  return $status
}

# A check that ends with `N passed, N failed, N skipped` by itself.
run_counted() { # command...
  "$@" 2>&1 | tee "$reports/$section.counted"
  return "${PIPESTATUS[0]}"
}

section_setup() { bash scripts/setup.sh test; }

section_format() { git ls-files '*.cpp' '*.hpp' '*.h' | xargs clang-format-19 --dry-run -Werror; }

section_scripts() {
  git ls-files '*.sh' .ci/run | xargs shellcheck --severity=warning
  git ls-files '*.py' | xargs .venv/bin/ruff check --quiet --
}

section_test() {
  cmake --preset test >/dev/null
  cmake --build --preset test
  run_ctest build/test
}

section_sanitizers() {
  cmake --preset debug >/dev/null
  cmake --build --preset debug
  run_ctest build/debug
}

# Where threads meet: the pool, and whole calls of every kernel from many threads.
section_threads() {
  cmake --preset tsan >/dev/null
  cmake --build --preset tsan --target kernel_test pool_probe cpu_concurrent_test
  run_ctest build/tsan --tests-regex '^(Pool|.*Concurrent)'
}

# The preset only lends its compile commands; nothing is built. They are those of a unity build, one file a library,
# because what costs is the standard library's headers: read once, they cost a quarter. The kernels' files of one
# instruction set stand for those of the others, which include the same code.
section_tidy() {
  cmake --preset tidy >/dev/null
  sed -nE 's#^ *"file": "(.*)".*#\1#p' build/tidy/compile_commands.json | grep -vE '/bench/|_(sse4|avx512)\.cpp$' |
    xargs -P "$jobs" -n 1 clang-tidy-19 --quiet -p build/tidy
}

# The NEON kernels, cross-built and run under qemu.
section_neon() {
  if [[ $(uname -m) != x86_64 ]]; then
    echo "skipped: made for x86-64; on Arm the other sections run the NEON kernels"
    return 0
  fi
  run_counted bash scripts/neon_check.sh
}

# The Metal kernels on this machine's processors.
section_metal() { run_counted bash scripts/metal_check.sh; }

# A short run from the seed corpora; longer ones: scripts/fuzz.sh SECONDS.
section_fuzz() { run_counted bash scripts/fuzz.sh 10; }

sections=(setup format scripts tidy test sanitizers threads fuzz neon metal)
(($#)) && sections=("$@")

failed_sections=()
for section in "${sections[@]}"; do
  printf '\n== %s\n' "$section"
  start=$SECONDS
  (set -e; "section_$section")
  status=$?
  ((status == 0)) || failed_sections+=("$section")
  printf -- '-- %s: %s, %d s\n' "$section" "$( ((status == 0)) && echo ok || echo FAILED)" $((SECONDS - start))
done

# Sums over the JUnit files: one <testsuite tests= failures= disabled= skipped= line each.
total=0 failed=0 skipped=0
attribute() { sed -n "s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$2" | head -n 1; }
for section in "${sections[@]}"; do
  report=$reports/$section.xml
  section_failures=0
  if [[ -f $report ]]; then
    section_failures=$(attribute failures "$report")
    total=$((total + $(attribute tests "$report")))
    skipped=$((skipped + $(attribute skipped "$report") + $(attribute disabled "$report")))
  fi
  counted=$(grep -hE '^[0-9]+ passed, [0-9]+ failed' "$reports/$section.counted" 2>/dev/null | tail -n 1)
  if [[ $counted =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]; then
    section_failures=$((section_failures + BASH_REMATCH[2]))
    skipped=$((skipped + ${BASH_REMATCH[4]:-0}))
    total=$((total + BASH_REMATCH[1] + BASH_REMATCH[2] + ${BASH_REMATCH[4]:-0}))
  fi
  if [[ " ${failed_sections[*]-} " == *" $section "* && $section_failures == 0 ]]; then
    section_failures=1
    total=$((total + 1))
  fi
  failed=$((failed + section_failures))
done
printf '\ntotal time: %d s\n' "$SECONDS"
((${#failed_sections[@]})) && echo "failed: ${failed_sections[*]}"
echo "$((total - failed - skipped)) passed, $failed failed, $skipped skipped"
((failed == 0))
