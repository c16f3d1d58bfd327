#!/usr/bin/env bash
# Installs what is missing, so that the demo or all tests can run. Usage: scripts/setup.sh demo|test
#
# Debian 12 or later, Ubuntu 24.04 or later: as root it installs by apt-get and asks nothing; otherwise it prints the
# line to run and exits with 1. macOS: uses brew where it is installed (written from brew's documentation; never run on
# a Mac). Python packages go into .venv in this folder. Running it again costs nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=${1:-}
if [[ $mode != demo && $mode != test ]]; then
  echo "usage: scripts/setup.sh demo|test" >&2
  exit 2
fi

demo_packages=(
  git                # the version in benchmark files
  g++                # the compiler
  cmake              # the build
  ninja-build        # the generator of the presets
  libhwy-dev         # Highway: SIMD in headers; its library is not linked
  libcli11-dev       # options of the command
  libfmt-dev         # its tables and messages
  nlohmann-json3-dev # safetensors headers, benchmark files
  python3            # plots, checks of the sources
  python3-venv       # .venv
)
test_packages=(
  ccache                # the presets share most objects
  pkg-config            # the installed package is found this way too
  libgtest-dev          # C++ tests
  clang-19              # second compiler: fuzzing, core's dialect, the Metal bench
  llvm-19               # its symbolizer: the lines in the Metal bench's findings
  libclang-rt-19-dev    # its sanitizers and libFuzzer
  clang-tidy-19         # static analysis
  clang-format-19       # format
  shellcheck            # these scripts
  g++-aarch64-linux-gnu # NEON kernels
  qemu-user             # runs them, and x86 kernels on processors that lack an instruction set
)
arm64_packages=(
  libhwy-dev:arm64   # the libraries above for the cross build
  libfmt-dev:arm64
  libgtest-dev:arm64
)
brew_packages=(git cmake ninja highway cli11 fmt nlohmann-json python@3.12)
brew_test_packages=(ccache pkg-config googletest llvm@19 shellcheck)

demo_python=(matplotlib)                  # plots
test_python=(numpy safetensors ruff)      # files that others write and read; Python lint

say() { printf 'setup: %s\n' "$*"; }
fail() {
  say "$*" >&2
  exit 1
}

install_debian() {
  local wanted=("${demo_packages[@]}") installed missing=() package
  if [[ $mode == test ]]; then
    wanted+=("${test_packages[@]}")
    # On an arm64 machine NEON is native, and there is no cross build.
    if [[ $(dpkg --print-architecture) == amd64 ]]; then wanted+=("${arm64_packages[@]}"); fi
  fi
  installed=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package} ${Package}:${Architecture}\n' 2>/dev/null |
    sed -n 's/^ii *//p' | tr ' ' '\n')
  for package in "${wanted[@]}"; do
    grep -qxF "$package" <<<"$installed" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  local add_architecture=""
  if [[ " ${missing[*]} " == *:arm64* && $(dpkg --print-foreign-architectures) != *arm64* ]]; then
    add_architecture="dpkg --add-architecture arm64"
  fi
  if ((EUID != 0)); then
    say "missing packages; run this as root, then this script again:"
    echo "  ${add_architecture:+$add_architecture && }apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    exit 1
  fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  $add_architecture
  apt-get -qq -o Acquire::Retries=3 update
  apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 install -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null
}

install_macos() {
  local wanted=("${brew_packages[@]}") missing=() package
  if [[ $mode == test ]]; then wanted+=("${brew_test_packages[@]}"); fi
  command -v brew >/dev/null || fail "missing packages; install these (with Homebrew: brew install ${wanted[*]})"
  for package in "${wanted[@]}"; do
    brew list --versions "$package" >/dev/null 2>&1 || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  say "installing with brew: ${missing[*]}"
  brew install "${missing[@]}"
}

# The first version in a tool's output, at least the one given.
require() { # tool, least version, command...
  local tool=$1 least=$2 version
  shift 2
  version=$("$@" 2>/dev/null | grep -oE '[0-9]+(\.[0-9]+)+|^[0-9]+$' | head -n 1) || true
  [[ -n $version ]] || fail "$tool does not run"
  if [[ $(printf '%s\n%s\n' "$least" "$version" | sort -V | head -n 1) != "$least" ]]; then
    fail "$tool $version is too old: $least or later is needed (supported: g++ 12, clang 16, CMake 3.25, Python 3.10" \
      "and later; Debian 12 and Ubuntu 24.04 have them)"
  fi
}

check_versions() {
  local compiler=${CXX:-c++}
  if "$compiler" --version 2>/dev/null | grep -q 'Apple clang'; then
    require "$compiler (Apple clang)" 15 "$compiler" --version
  elif "$compiler" --version 2>/dev/null | grep -q clang; then
    require "$compiler (clang)" 16 "$compiler" --version
  else
    require "$compiler (g++)" 12 "$compiler" -dumpfullversion
  fi
  require cmake 3.25 cmake --version
  require python3 3.10 python3 --version
}

install_python() {
  local wanted=("${demo_python[@]}") package missing=()
  if [[ $mode == test ]]; then wanted+=("${test_python[@]}"); fi
  [[ -x .venv/bin/python ]] || python3 -m venv .venv
  for package in "${wanted[@]}"; do
    compgen -G ".venv/lib/python3*/site-packages/${package}-*.dist-info" >/dev/null || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  say "installing Python packages into .venv: ${missing[*]}"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input "${missing[@]}"
}

case $(uname -s) in
Linux)
  command -v apt-get >/dev/null || fail "this system has no apt-get; install the equivalents of: ${demo_packages[*]}"
  install_debian
  ;;
Darwin) install_macos ;;
*) fail "$(uname -s) is not supported; Linux and macOS are" ;;
esac
check_versions
install_python
say "$mode: everything is here"
