#!/usr/bin/env bash
# Sets up, then proves everything that this machine can prove. Usage: scripts/test.sh [section...]
# Without arguments all sections run; a failing one does not stop the others. Ends with `N passed, N failed, N skipped`
# over all ctest runs, a section that fails outside ctest counting as one, and exits with 1 if anything failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

jobs=$(nproc 2>/dev/null || sysctl -n hw.ncpu)
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CMAKE_BUILD_PARALLEL_LEVEL=$jobs
sources() { git ls-files '*.cpp' '*.hpp' '*.h'; }

# ctest on a build folder; remembers the counts. Tests that print their own failures need no repetition of passes.
run_ctest() { # build folder, further options of ctest
  ctest --test-dir "$1" --parallel "$jobs" --timeout 600 --output-on-failure --quiet \
    --output-log "$reports/log" --output-junit "$reports/$section.xml" "${@:2}" >/dev/null 2>&1
  local status=$?
  sed -n '/tests passed/,$p' "$reports/log"
  ((status == 0)) || grep -vE '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test +#[0-9]+: .* Passed)' "$reports/log"
  return $status
}

section_setup() { bash scripts/setup.sh test; }

section_format() {
  sources | xargs clang-format-19 --dry-run -Werror
}

section_scripts() {
  git ls-files '*.sh' .ci/run | xargs shellcheck
  git ls-files '*.py' | xargs .venv/bin/ruff check --quiet --
}

section_test() {
  cmake --preset test >/dev/null
  cmake --build --preset test
  run_ctest build/test
}

# Everything but what takes minutes under sanitizers.
section_sanitizers() {
  cmake --preset debug >/dev/null
  cmake --build --preset debug
  run_ctest build/debug --label-exclude slow
}

# Threads only: the pool, and calls from many threads.
section_threads() {
  cmake --preset tsan >/dev/null
  cmake --build --preset tsan --target kernel_test pool_probe api_test
  run_ctest build/tsan --tests-regex '^(Pool|Threads|Concurren)'
}

section_tidy() {
  cmake --preset tidy >/dev/null
  cmake --build --preset tidy
}

# The arm64 build under emulation: the tests of the kernels, and every case of the conformance suite that is quick.
section_neon() {
  if [[ $(uname -m) != x86_64 ]]; then
    echo "skipped: only built on x86-64, where it needs emulation; elsewhere NEON is what the other sections run"
    return 0
  fi
  cmake -S . -B build/neon -G Ninja --toolchain cmake/aarch64-linux-gnu.cmake -DCMAKE_BUILD_TYPE=Release \
    -DTILEWISE_WERROR=ON -DTILEWISE_BUILD_TESTS=ON >/dev/null
  cmake --build build/neon --target tilewise_command
  qemu-aarch64 -cpu cortex-a76 -L /usr/aarch64-linux-gnu build/neon/bin/tilewise check --quick --kernel cpu.neon
}

sections=(setup format scripts test sanitizers threads tidy neon)
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
