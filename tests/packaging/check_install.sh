#!/usr/bin/env bash
# Checks what the package promises. Usage: check_install.sh headers|static|shared|subproject
# From the environment: BUILD_DIR (a static build of this tree), CXX, CMAKE, VERSION.
set -euo pipefail
mode=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "packaging ($mode): $*" >&2
  exit 1
}

# Public headers compile alone, in any order, under warnings that are not ours.
check_headers() {
  local header
  for header in "$root"/include/tilewise/*.hpp; do
    for flags in "-std=c++20 -Wall -Wextra -Wpedantic -Wconversion" "-std=c++20 -DTILEWISE_STATIC -fvisibility=hidden"; do
      # shellcheck disable=SC2086
      echo "#include <tilewise/$(basename "$header")>" |
        "$CXX" $flags -Werror -fsyntax-only -I"$root/include" -x c++ - || fail "$(basename "$header") does not stand alone"
    done
  done
  if grep -nE '#include' "$root"/include/tilewise/*.hpp | grep -vE '<[a-z_]+>|"tilewise/[a-z_]+\.hpp"'; then
    fail "a public header includes something that is neither standard nor ours"
  fi
}

install_static() {
  "$CMAKE" --install "$BUILD_DIR" --prefix "$work/first" >/dev/null
}

# The optimiser plays no part in what is checked here, and leaving it out saves minutes.
install_shared() {
  "$CMAKE" -S "$root" -B "$work/build" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DTILEWISE_WERROR=ON -DBUILD_SHARED_LIBS=ON -DTILEWISE_BUILD_CLI=OFF >/dev/null
  "$CMAKE" --build "$work/build" >"$work/log" || { cat "$work/log" && fail "does not build"; }
  "$CMAKE" --install "$work/build" --prefix "$work/first" >/dev/null
}

# Exactly these headers, and no path of the machine that built it.
check_contents() {
  local headers expected
  headers=$(cd "$prefix/include" && find . -type f | sort)
  expected=$(cd "$root/include" && find . -name '*.hpp' -o -name 'tilewise.h' | sort)
  [[ $headers == "$expected" ]] || fail "installed headers: $headers"
  if grep -rlF -e "$work/first" -e "$root" "$prefix"/lib*/cmake "$prefix"/lib*/*/cmake "$prefix"/lib*/pkgconfig \
    "$prefix"/lib*/*/pkgconfig 2>/dev/null; then
    fail "these files name the build or the first prefix"
  fi
}

run_consumer() {
  local output
  output=$(env "$@" 2>&1) || { echo "$output" && fail "the consumer failed"; }
  grep -q "^tilewise $VERSION, kernel cpu" <<<"$output" || fail "unexpected: $output"
}

check_find_package() {
  "$CMAKE" -S "$root/examples/cpp_minimal" -B "$work/consumer" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" \
    -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release >/dev/null
  "$CMAKE" --build "$work/consumer" >/dev/null
  run_consumer "$work/consumer/cpp_minimal"
  # A version that may differ in interface is not taken.
  mkdir "$work/other"
  printf 'cmake_minimum_required(VERSION 3.25)\nproject(other NONE)\nfind_package(tilewise 0.%s REQUIRED)\n' \
    "$(($(cut -d. -f2 <<<"$VERSION") + 1))" >"$work/other/CMakeLists.txt"
  if "$CMAKE" -S "$work/other" -B "$work/other/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null 2>&1; then
    fail "find_package takes the wrong minor version"
  fi
}

check_pkg_config() {
  export PKG_CONFIG_PATH=$libdir/pkgconfig
  [[ $(pkg-config --modversion tilewise) == "$VERSION" ]] || fail "pkg-config gives another version"
  # shellcheck disable=SC2046
  "$CXX" -std=c++20 "$root/examples/cpp_minimal/main.cpp" -o "$work/by_pkg_config" \
    $(pkg-config --cflags --libs tilewise)
  run_consumer LD_LIBRARY_PATH="$libdir" "$work/by_pkg_config"
}

# Everything that the shared library defines for others is in namespace tilewise or starts with tilewise_.
check_symbols() {
  local library=$libdir/libtilewise.so soname symbols foreign
  soname=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
  [[ $soname == "libtilewise.so.${VERSION%.*}" ]] || fail "soname $soname"
  symbols=$(nm -D --defined-only -C "$library" | cut -d' ' -f3- | sort -u)
  foreign=$(grep -vE '^((vtable|typeinfo|typeinfo name) for )?tilewise(::|_)' <<<"$symbols" || true)
  [[ -z $foreign ]] || fail "exports symbols that are not ours: $foreign"
  for name in 'tilewise::attention_forward(' 'tilewise::Plan::run(' 'typeinfo for tilewise::Unsupported'; do
    grep -qF "$name" <<<"$symbols" || fail "does not export $name"
  done
  # A few names that are internal by their floor.
  if grep -E 'tilewise::(core|cpu|cuda|metal|verify)::|default_pool' <<<"$symbols"; then fail "exports internals"; fi
}

check_subproject() {
  "$CMAKE" -S "$root/examples/subproject" -B "$work/subproject" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" \
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
  "$CMAKE" --build "$work/subproject" >"$work/log" || { cat "$work/log" && fail "does not build"; }
  run_consumer "$work/subproject/subproject"
  local own
  own=$(grep '"command".*cpp_minimal/main.cpp' "$work/subproject/compile_commands.json")
  if grep -qE -- '-W|-fvisibility' <<<"$own"; then fail "our flags reach the consumer: $own"; fi
  if [[ -e $work/subproject/tilewise/bin/tilewise ]]; then fail "the command was built"; fi
}

case $mode in
headers) check_headers ;;
subproject) check_subproject ;;
static | shared)
  "install_$mode"
  prefix=$work/moved/somewhere\ else # relocatable: also below a path with a space
  mkdir -p "$work/moved"
  mv "$work/first" "$prefix"
  libdir=$(dirname "$(find "$prefix" -name 'libtilewise.*' -print -quit)")
  check_contents
  check_find_package
  prefix_link=$work/link # pkg-config's output is split at spaces by the shell above
  ln -s "$prefix" "$prefix_link"
  libdir=$prefix_link/${libdir#"$prefix"/}
  check_pkg_config
  if [[ $mode == shared && $(uname -s) == Linux ]]; then check_symbols; fi
  ;;
*) fail "unknown mode" ;;
esac
echo "packaging ($mode): ok"
