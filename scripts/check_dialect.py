#!/usr/bin/env python3
"""Keeps src/core/ in its dialect: C++14 that is also CUDA C++ and Metal Shading Language.

  check_dialect.py lint                      what Metal lacks or our rules forbid, line by line
  check_dialect.py self-test                 every lint rule finds the fault that was seeded for it, and nothing else
  check_dialect.py cxx14 [--compiler CXX]    each header alone, as C++14 by clang; the shared ones without any library
  check_dialect.py cxx20 [--compiler CXX]    the same as C++20
  check_dialect.py metal [--compiler CXX]    with Metal's type names, as C++14 by clang
  check_dialect.py opencl [--compiler CXX]   as C++ for OpenCL by clang: address spaces, as Metal has them
  check_dialect.py nvcc [--compiler NVCC]    as CUDA C++, for host and device

Warnings are errors. Exit code 0: fine, 1: findings, 77: the compiler is not here.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORE = ROOT / "src" / "core"
PROBE = ROOT / "tests" / "core" / "dialect_probe.h"
SKIPPED = 77

# Compiled for every target. The other headers of core/ are C++ for hosts.
SHARED = ["lang.h", "band.h", "tile_range.h", "index_map.h", "philox.h", "row_softmax-inl.h", "scores-inl.h"]


# --- Lint ------------------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Rule:
    name: str
    why: str
    pattern: str
    seeds: tuple[str, ...]  # lines that the rule, and no other, must find
    raw: bool = False  # looks at comments and strings too
    in_lang: bool = True  # applies to lang.h, the only file that knows the compilers


RULES = [
    Rule("ascii", "torch.mps converts sources as ASCII", r"[^\x00-\x7f]", ("  // caf\u00e9",), raw=True),
    Rule("standard header", "Metal and NVRTC have none", r"^\s*#\s*include\s*<", ("#include <cmath>",)),
    Rule("std", "Metal has no std namespace", r"\bstd\s*::", ("  const int y = std::min(x, 3);",)),
    Rule("pointer", "pointers need an address space in Metal", r"(?<!\s)\*|\*(?!\s)|->|\bnullptr\b",
         ("int* p", "int *p", "  x = p->y;", "  x = nullptr;")),
    Rule("reference", "references need an address space in Metal",
         r"(?<![\s&])&(?!&)|(?<!&)&(?![\s&])|(?<!\s)&&|&&(?!\s)",
         ("TW_FN int f(Band& band) { return 0; }", "TW_FN int f(Band &band) { return 0; }",
          "TW_FN int f(Band&& band) { return 0; }")),
    Rule("lambda", "Metal has them only from 3.2 on", r"\[[^\[\]]*\]\s*[({]",
         ("  const auto f = [=](int y) { return y; };", "  const auto f = [] { return 1; };")),
    Rule("attribute", "standard attributes differ between C++14 and Metal", r"\[\[", ("[[nodiscard]] TW_FN int f();",)),
    Rule("double", "Metal has no double", r"\bdouble\b", ("  double y = 1;", "  long double y = 1;")),
    Rule("double literal", "a literal without f is a double",
         r"(?<![\w.])(?:\d+\.\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)(?![\w.])",
         ("  x = 1.5;", "  x = 1e3;", "  x = .5;", "  x = 2.;")),
    Rule("literal suffix", "L and LL mean other widths elsewhere; cast and shift", r"(?<![\w.])\d\w*[lL](?:[uU])?\b",
         ("  x = 1LL;", "  x = 0x7fULL;", "  x = 1L;", "  x = 5llu;")),
    Rule("long", "its width differs; use tw_i64 or tw_u64", r"\blong\b(?!\s+double)", ("  long y = 1;",), in_lang=False),
    Rule("standard integer", "use tw_i32, tw_i64, tw_u32, tw_u64",
         r"\b(?:s?size_t|ptrdiff_t|u?int(?:_fast|_least)?(?:8|16|32|64)_t|u?intptr_t)\b",
         ("  size_t y = 1;", "  int64_t y = 1;", "  uint8_t y = 1;")),
    Rule("static", "Metal has no static locals or data", r"\bstatic\b", ("  static int y = 1;",)),
    Rule("bool array", "its layout differs", r"\bbool\s+\w+\s*\[", ("  bool seen[4];",)),
    Rule("virtual", "not in Metal", r"\bvirtual\b", ("struct A { virtual int f(); };",)),
    Rule("exception", "not in Metal", r"\b(?:try|catch|throw)\b", ("  throw 1;", "  try { x = 1; } catch (int) { x = 2; }")),
    Rule("goto", "not in Metal", r"\bgoto\b", ("  goto end;",)),
    Rule("allocation", "not in Metal", r"\b(?:new|delete)\b", ("  delete x;",)),
    Rule("cast", "values need only static_cast", r"\b(?:dynamic_cast|reinterpret_cast|const_cast|typeid)\b",
         ("  x = reinterpret_cast<int>(y);",)),
    Rule("storage", "not in Metal", r"\b(?:thread_local|asm|extern|mutable|volatile)\b", ("extern int y;", "  asm();")),
    Rule("member function", "this has an address space in Metal", r"\b(?:this|operator)\b",
         ("  int operator()(int y) { return y; }",)),
    Rule("literal text", "not in Metal", r"^(?!\s*#).*[\"']", ("  x = 'a';", '  x = f("text");')),
    Rule("global", "variables at namespace scope need an address space in Metal", r"^(?:inline\s+)?(?:constexpr|const)\b",
         ("constexpr int tile = 4;", "inline constexpr int tile = 4;")),
    Rule("plain function", "functions need TW_FN to exist on devices",
         r"^(?!TW_FN\b)(?:inline\s+|constexpr\s+)?[A-Za-z_][\w:<>]*\s+\w+\(", ("inline int f() { return 1; }", "int f();")),
    Rule("reserved name", "a keyword or type of Metal, CUDA or OpenCL",
         r"\b(?:device|constant|thread|threadgroup|kernel|vertex|fragment|half|bfloat|sampler|global|local|private|"
         r"uchar|ushort|uint|ulong)\b", ("  const int kernel = 1;", "  uint y = 1;"), in_lang=False),
    Rule("compiler's name", "only lang.h knows the compilers", r"\b__\w+", ("  x = __builtin_abs(x);",), in_lang=False),
]


@dataclasses.dataclass(frozen=True)
class Finding:
    file: str
    line: int
    rule: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.why}"


def without_comments(text: str) -> str:
    """The text with comments blanked, lines kept. Strings are left: the shared headers hold them only in directives."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())  # noqa: E731
    return re.sub(r"//[^\n]*|/\*.*?\*/", blank, text, flags=re.S)


def functions(code: str) -> dict[str, tuple[int, str]]:
    """Name -> (line, body) of each function that TW_FN introduces."""
    found = {}
    for match in re.finditer(r"^\s*TW_FN\s[^(){};]*?(\w+)\(", code, flags=re.M):
        opening = code.find("{", match.end())
        depth, end = 0, opening
        for end in range(opening, len(code)):
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            if depth == 0:
                break
        # Parameters may hold braces only in default arguments, which the headers do not use.
        found[match.group(1)] = (code.count("\n", 0, match.start(1)) + 1, code[opening:end])
    return found


def recursive(bodies: dict[str, tuple[int, str]]) -> list[str]:
    """Functions that reach themselves. Qualified calls (Ops<V>::max) leave the header."""
    calls = {name: {callee for callee in re.findall(r"(?<![\w:.])(\w+)\s*(?:<\w+>)?\(", body) if callee in bodies}
             for name, (_, body) in bodies.items()}
    found = []
    for start in calls:
        reached, todo = set(), list(calls[start])
        while todo:
            name = todo.pop()
            if name not in reached:
                reached.add(name)
                todo.extend(calls[name])
        if start in reached:
            found.append(start)
    return found


def lint_text(file: str, text: str) -> list[Finding]:
    findings = []
    code = without_comments(text)
    raw_lines, code_lines = text.split("\n"), code.split("\n")
    unincluded = [re.sub(r'(#\s*include\s*)".*', r"\1", line) for line in code_lines]
    for rule in RULES:
        if file == "lang.h" and not rule.in_lang:
            continue
        for number, line in enumerate(raw_lines if rule.raw else unincluded, 1):
            if re.search(rule.pattern, line):
                findings.append(Finding(file, number, rule.name, rule.why))
    for number, line in enumerate(code_lines, 1):
        include = re.match(r'\s*#\s*include\s*"([^"]*)"', line)
        if not include:
            continue
        name = include.group(1).removeprefix("core/")
        # A header parsed alone, by tools, falls through to the scalar vocabulary.
        tools_only = name == "ops_scalar.h" and code_lines[number - 2].startswith("#ifndef TW_TARGET")
        if not tools_only and (name not in SHARED or not include.group(1).startswith("core/")):
            findings.append(Finding(file, number, "include", "shared headers include shared headers only"))
    bodies = functions(code)
    for name in recursive(bodies):
        findings.append(Finding(file, bodies[name][0], "recursion", f"{name} calls itself; not in Metal"))
    return findings


def lint() -> int:
    findings = [f for name in SHARED for f in lint_text(name, (CORE / name).read_text(encoding="utf-8"))]
    probe = without_comments(PROBE.read_text(encoding="utf-8"))
    for name in SHARED:
        for function in functions(without_comments((CORE / name).read_text(encoding="utf-8"))):
            if not re.search(rf"\b{function}(?:<float>)?\(", probe.split("#undef TW_TARGET")[1]):
                findings.append(Finding(name, 1, "probe", f"{PROBE.name} does not call {function}"))
    hosts = {"ops_scalar.h", "softmax_scalar.h"}
    for path in sorted(CORE.iterdir()):
        if path.name not in hosts.union(SHARED):
            findings.append(Finding(path.name, 1, "list", "neither in SHARED nor a header for hosts"))
    for finding in findings:
        print(finding)
    print(f"{len(SHARED)} shared headers, {len(RULES) + 2} rules, {len(findings)} findings")
    return 1 if findings else 0


CLEAN = """#pragma once

// A comment may say std::vector, int* p, "text" and 1.5; it's harmless.

#include "core/lang.h"

namespace tilewise {
template <class V>
TW_FN V doubled(V a) {
  return Ops<V>::add(a, a);
}
struct Pair {
  tw_i64 a;
  tw_i64 b;
};
TW_FN Pair pair_of(tw_i64 a, tw_i64 b) { return {a * b, a & b}; }
TW_FN float half_of(float x) { return x * 0.5f + 1e-3f; }
TW_FN int last(int x) {
SEED
  return x > 0 && x < 0x1E3 ? static_cast<int>(0x7fu) : x;
}
}  // namespace tilewise
"""

SEEDED_TEXTS = [
    ("include", '#include "kernel/kernel.hpp"'),
    ("include", '#include "core/ops_scalar.h"'),
    ("recursion", "}\nTW_FN int f(int x) {\n  return f(x - 1);"),
    ("recursion", "}\nTW_FN int f(int x) {\n  return g(x);\n}\nTW_FN int g(int x) {\n  return f(x) + 1;"),
]


def self_test() -> int:
    failures = []
    clean = lint_text("clean.h", CLEAN.replace("SEED\n", ""))
    failures += [f"a clean header: {finding}" for finding in clean]
    seeds = [(rule.name, seed) for rule in RULES for seed in rule.seeds] + SEEDED_TEXTS
    for name, seed in seeds:
        found = {finding.rule for finding in lint_text("seeded.h", CLEAN.replace("SEED", seed))}
        if found != {name}:
            failures.append(f"{seed!r}: expected {name!r}, found {sorted(found)}")
    for failure in failures:
        print(failure)
    print(f"{len(seeds)} seeded faults, {len(failures)} failures")
    return 1 if failures else 0


# --- Compilers -------------------------------------------------------------------------------------------------------

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wold-style-cast", "-Werror"]
BARE = ["-ffreestanding", "-nostdinc", "-nostdinc++", "-fno-exceptions", "-fno-rtti"]
BUILTINS = ["-DPROBE_EXP2=__builtin_exp2f", "-DPROBE_LOG2=__builtin_log2f", "-DPROBE_TANH=__builtin_tanhf"]
INCLUDES = [f"-I{ROOT / 'src'}", f"-I{PROBE.parent}"]
INCLUDE_PROBE = f'#include "{PROBE.name}"\n'
PROBE_MAIN = INCLUDE_PROBE + """
tw_i64 probe_integers(tw_i64 x);
float probe_reals(float x);
tw_i64 probe_integers(tw_i64 x) { return probe::every_integer_function(x); }
float probe_reals(float x) { return probe::every_real_function(x); }
"""


class Compiler:
    """One command line; `compile` says whether a source passes, `must_reject` that a seeded fault does not."""

    def __init__(self, command: list[str], suffix: str, folder: pathlib.Path):
        self.command, self.suffix, self.folder = command, suffix, folder
        self.failures = 0

    def run(self, source: str, flags: list[str]) -> subprocess.CompletedProcess[str]:
        path = self.folder / f"source{self.suffix}"
        path.write_text(source, encoding="utf-8")
        return subprocess.run([*self.command, *INCLUDES, *flags, str(path)], capture_output=True, text=True,
                              cwd=self.folder, timeout=300, check=False)

    def compile(self, what: str, source: str, flags: list[str]) -> None:
        result = self.run(source, flags)
        if result.returncode != 0:
            self.failures += 1
            print(f"--- {what}\n{result.stdout}{result.stderr}")

    def must_reject(self, what: str, source: str, flags: list[str], says: str) -> None:
        result = self.run(source, flags)
        if result.returncode == 0 or says not in result.stderr + result.stdout:
            self.failures += 1
            print(f"--- seeded fault not rejected with {says!r}: {what}\n{result.stdout}{result.stderr}")


def check_headers(compiler: Compiler, standard: str) -> None:
    """Every header of core/ alone, and the shared ones without a library; then all functions at once."""
    for path in sorted(CORE.glob("*.h")):
        alone = f'#include "core/{path.name}"\n'
        by_tools = path.name.endswith("-inl.h")  # falls through to the host's vocabulary
        bare = BARE if path.name in SHARED and not by_tools else []
        compiler.compile(f"{path.name} alone", alone, [standard, *bare])
        if by_tools:
            compiler.compile(f"{path.name} as its own file", path.read_text(encoding="utf-8"), [standard])
    compiler.compile("every function", PROBE_MAIN, [standard, *BARE, *BUILTINS])


def cxx14(compiler: Compiler) -> None:
    check_headers(compiler, "-std=c++14")
    compiler.must_reject("C++17", "namespace a::b {}\n", ["-std=c++14"], "C++17")
    compiler.must_reject("a library", "#include <cmath>\n", ["-std=c++14", *BARE], "cmath")


def cxx20(compiler: Compiler) -> None:
    check_headers(compiler, "-std=c++20")
    compiler.must_reject("a lossy conversion", "int f(long x);\nint f(long x) { return x; }\n", ["-std=c++20"], "conversion")


def metal(compiler: Compiler) -> None:
    """The branch of lang.h that only Metal takes; its 64-bit `long` is this machine's too."""
    names = "typedef unsigned int uint;\ntypedef unsigned long ulong;\n"
    flags = ["-std=c++14", "-D__METAL_VERSION__=320", *BARE, *BUILTINS]
    compiler.compile("every function", names + PROBE_MAIN, flags)
    compiler.must_reject("Metal's names missing", PROBE_MAIN, flags, "uint")


def opencl(compiler: Compiler) -> None:
    flags = ["-DPROBE_EXP2=::exp2", "-DPROBE_LOG2=::log2", "-DPROBE_TANH=::tanh"]
    kernel = INCLUDE_PROBE + """
__kernel void probe_all(__global long* integers, __global float* reals) {
  const size_t i = get_global_id(0);
  integers[i] = probe::every_integer_function(integers[i]);
  reals[i] = probe::every_real_function(reals[i]);
}
"""
    compiler.compile("every function", kernel, flags)
    compiler.must_reject("a pointer without its address space", kernel + "float first(float __private* p) { return *p; }\n"
                         "__kernel void bad(__global float* p) { *p = first(p); }\n", flags, "first")


def nvcc(compiler: Compiler) -> None:
    flags = ["-DPROBE_EXP2=exp2f", "-DPROBE_LOG2=log2f", "-DPROBE_TANH=tanhf"]
    kernel = PROBE_MAIN + """
__global__ void probe_all(tw_i64* integers, float* reals) {
  integers[threadIdx.x] = probe::every_integer_function(integers[threadIdx.x]);
  reals[threadIdx.x] = probe::every_real_function(reals[threadIdx.x]);
}
"""
    compiler.compile("every function", kernel, flags)
    compiler.must_reject("a host function on the device", '#include "core/lang.h"\nint host_only(int x) { return x; }\n'
                         "__global__ void bad(int* x) { *x = host_only(*x); }\n", flags, "host_only")


CLANGS = ["clang++-19", "clang++-18", "clang++-17", "clang++-16", "clang++"]
MODES = {
    "cxx14": (cxx14, CLANGS, ".cpp", ["-fsyntax-only", *STRICT]),
    "cxx20": (cxx20, ["c++"], ".cpp", ["-fsyntax-only", *STRICT]),
    "metal": (metal, CLANGS, ".cpp", ["-fsyntax-only", *STRICT]),
    "opencl": (opencl, CLANGS, ".cl",
               ["-x", "cl", "-cl-std=clc++", "-target", "spir64", "-fsyntax-only", *STRICT]),
    "nvcc": (nvcc, ["nvcc", "/usr/local/cuda/bin/nvcc"], ".cu",
             ["-gencode", "arch=compute_90a,code=sm_90a", "-std=c++20", "-c", "-o", "probe.o", "-Werror", "all-warnings",
              "-Xcompiler", "-Wall,-Wextra,-Wconversion,-Wshadow,-Werror"]),
}


def compile_mode(mode: str, named: str | None) -> int:
    check, candidates, suffix, flags = MODES[mode]
    found = next((path for name in ([named] if named else candidates) if (path := shutil.which(name))), None)
    if not found:
        print(f"skipped: none of {', '.join([named] if named else candidates)} is here")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="tilewise_dialect_") as folder:
        compiler = Compiler([found, *flags], suffix, pathlib.Path(folder))
        check(compiler)
    print(f"{mode}: {found}, {compiler.failures} failures")
    return 1 if compiler.failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["lint", "self-test", *MODES])
    parser.add_argument("--compiler", help="the compiler to use, instead of the first that is found")
    arguments = parser.parse_args()
    if arguments.mode == "lint":
        return lint()
    if arguments.mode == "self-test":
        return self_test()
    return compile_mode(arguments.mode, arguments.compiler)


if __name__ == "__main__":
    sys.exit(main())
