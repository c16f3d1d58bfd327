#!/usr/bin/env python3
"""Proves the tests of core/: seeds one fault at a time into a copy of its headers and shows that the tests fail for each.

  tests/core/mutants.py [--compiler CXX] [--jobs N] [--only TEXT]

Each fault is one replacement, which must fit exactly once. The unchanged headers must pass the same way first.
Exit code 0: every fault was found.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORE = ROOT / "src" / "core"
TESTS = ROOT / "tests" / "core"
# Overflow wraps instead of being undefined, so that a missing saturation computes something definite.
FLAGS = ["-std=c++20", "-O0", "-fwrapv", "-DTW_SPARSE_TESTS"]


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    header: str
    old: str
    new: str


BAND, TILES, INDEX, PHILOX = "band.h", "tile_range.h", "index_map.h", "philox.h"
SOFTMAX, SCORES = "row_softmax-inl.h", "scores-inl.h"
TEST_OF = {BAND: "band_test.cpp", TILES: "tile_range_test.cpp", INDEX: "index_map_test.cpp",
           PHILOX: "philox_test.cpp", SOFTMAX: "softmax_test.cpp", SCORES: "softmax_test.cpp"}

MUTANTS = [
    Mutant("the last visible key is dropped", BAND,
           "const tw_i64 end = clamp_i64(add_saturated(last_key(band, i), 1), 0, k_len);",
           "const tw_i64 end = clamp_i64(last_key(band, i), 0, k_len);"),
    Mutant("the upper bound is exclusive", BAND, "j <= last_key(band, i)", "j < last_key(band, i)"),
    Mutant("addition does not saturate", BAND, "if (b > 0 && a > i64_highest() - b) return i64_highest();", ""),
    Mutant("subtraction does not saturate", BAND, "if (b > 0 && a < i64_lowest() + b) return i64_lowest();", ""),
    Mutant("an unbounded left side ends at the diagonal", BAND, "subtract_saturated(delta, left) : i64_lowest()",
           "subtract_saturated(delta, left) : delta"),
    Mutant("an unbounded right side moves with the query", BAND,
           "band.hi == i64_highest() ? band.hi : add_saturated(i, band.hi)", "band.hi - 4096 + i"),
    Mutant("left and right change sides", BAND, "add_saturated(delta, right)", "subtract_saturated(delta, right)"),
    Mutant("the range of a tile ends one query too late", BAND,
           "add_saturated(last_key(band, queries.end - 1), 1)", "add_saturated(last_key(band, queries.end), 1)"),
    Mutant("common keys start at the first query", BAND, "first_key(band, queries.end - 1)",
           "first_key(band, queries.begin)"),
    Mutant("a crossed band is taken for a visible one", BAND, "queries.begin >= queries.end || band.lo > band.hi",
           "queries.begin >= queries.end"),
    Mutant("lo and hi are not exchanged by the transposition", BAND,
           "{band.hi == i64_highest() ? i64_lowest() : subtract_saturated(0, band.hi), subtract_saturated(0, band.lo)}",
           "{subtract_saturated(0, band.lo), subtract_saturated(0, band.hi)}"),
    Mutant("a cut tile is reported full", TILES, "first_key(band, last) <= keys.begin &&",
           "first_key(band, first) <= keys.begin &&"),
    Mutant("a tile past the band is reported cut", TILES, "first_key(band, first) >= keys.end",
           "first_key(band, first) > keys.end"),
    Mutant("the last key tile is dropped", TILES, "return {keys.begin / tile_k, ceil_div(keys.end, tile_k)};",
           "return {keys.begin / tile_k, keys.end / tile_k};"),
    Mutant("a tile that starts cut is called full", TILES, "const tw_i64 begin = ceil_div(keys.begin, tile_k);",
           "const tw_i64 begin = keys.begin / tile_k;"),
    Mutant("a full tail tile is called cut", TILES,
           "keys.end == k_len ? ceil_div(k_len, tile_k) : keys.end / tile_k", "keys.end / tile_k"),
    Mutant("query tiles by the untransposed band", TILES, "return key_tiles(transposed(band), keys, q_len, tile_q);",
           "return key_tiles(band, keys, q_len, tile_q);"),
    Mutant("the ramp of the pairs counts its diagonal twice", TILES, "ramp * (ramp - 1) / 2", "ramp * (ramp + 1) / 2"),
    Mutant("pairs on the lower bound are lost", TILES, "count_up_to(subtract_saturated(band.lo, 1), q_len, k_len)",
           "count_up_to(band.lo, q_len, k_len)"),
    Mutant("the last part runs past the end", TILES, "length - begin < size ? length : begin + size", "begin + size"),
    Mutant("query heads are dealt out in turn", INDEX, "return q_head / (q_heads / kv_heads);",
           "return q_head % kv_heads;"),
    Mutant("the wrong corner", INDEX, "corner == corner_bottom_right ? k_len - q_len : 0",
           "corner == corner_top_left ? k_len - q_len : 0"),
    Mutant("ALiBi ignores an explicit delta", INDEX, "corner == corner_explicit ? explicit_delta : k_len - q_len",
           "k_len - q_len"),
    Mutant("ALiBi's distance wraps", INDEX, "add_saturated(i - j, delta)", "i - j + delta"),
    Mutant("rows of a page are counted modulo one too many", INDEX, "j % page_size", "j % (page_size + 1)"),
    Mutant("a bad page stays bad", INDEX, "clamp_i64(entry, 0, num_pages - 1)", "max_i64(entry, 0)"),
    Mutant("a slot may end before it begins", INDEX, "clamp_i64(end, first, rows)", "clamp_i64(end, 0, rows)"),
    Mutant("key lengths are not clamped", INDEX, "clamp_i64(k_len, 0, k_rows)", "k_len"),
    Mutant("a stride of heads in 32 bits", INDEX, "h * strides.h", "static_cast<tw_i32>(h * strides.h)"),
    Mutant("a stride is ignored", INDEX, "d * strides.d", "d"),
    Mutant("Philox with 9 rounds", PHILOX, "round < 10", "round < 9"),
    Mutant("the key's constants exchanged", PHILOX, "key0 += 0x9E3779B9u;", "key0 += 0xBB67AE85u;"),
    Mutant("one counter for each key instead of four", PHILOX, "row_of_heads, i, j / 4);", "row_of_heads, i, j);"),
    Mutant("the seed's words exchanged", PHILOX, "static_cast<tw_u32>(seed), static_cast<tw_u32>(seed >> 32)",
           "static_cast<tw_u32>(seed >> 32), static_cast<tw_u32>(seed)"),
    Mutant("the threshold itself is dropped", PHILOX, "word >= threshold", "word > threshold"),
    Mutant("l is not rescaled when m grows", SOFTMAX, "{{m, Ops<V>::mul(rows.l, alpha)}, alpha}",
           "{{m, rows.l}, alpha}"),
    Mutant("alpha the wrong way round", SOFTMAX, "const V alpha = weight(rows.m, m);",
           "const V alpha = weight(m, rows.m);"),
    Mutant("merge's weights exchanged", SOFTMAX, "Ops<V>::mul(b.l, wb))}, wa, wb}", "Ops<V>::mul(b.l, wb))}, wb, wa}"),
    Mutant("merge forgets to weigh the second part", SOFTMAX, "Ops<V>::mul(b.l, wb)", "b.l"),
    Mutant("an empty row divides by zero", SOFTMAX,
           "Ops<V>::select_equal(rows.l, Ops<V>::zero(), Ops<V>::zero(), Ops<V>::div(Ops<V>::one(), rows.l))",
           "Ops<V>::div(Ops<V>::one(), rows.l)"),
    Mutant("an empty row starts at -inf", SOFTMAX, "return {Ops<V>::lowest(), Ops<V>::zero()};",
           "return {Ops<V>::div(Ops<V>::neg(Ops<V>::one()), Ops<V>::zero()), Ops<V>::zero()};"),
    Mutant("a clamp swallows NaN", SOFTMAX, "Ops<V>::exp2(Ops<V>::sub(score, m))",
           "Ops<V>::exp2(Ops<V>::min(Ops<V>::sub(score, m), Ops<V>::zero()))"),
    Mutant("a sink of -inf counts", SOFTMAX, "return {m, weight(logit, m)};", "return {m, Ops<V>::one()};"),
    Mutant("LSE stays in log2 units", SOFTMAX, "Ops<V>::log2(rows.l)), Ops<V>::ln2())",
           "Ops<V>::log2(rows.l)), Ops<V>::one())"),
    Mutant("a finite score overflows to a mask", SCORES, "Ops<V>::select_finite(x, clamped, x)", "y"),
    Mutant("a clamped score loses its NaN", SCORES, "Ops<V>::select_finite(x, clamped, x)", "clamped"),
    Mutant("softcap by the wrong scale", SCORES, "Ops<V>::mul(cap, Ops<V>::tanh(Ops<V>::div(s, cap)))",
           "Ops<V>::mul(cap, Ops<V>::tanh(s))"),
    Mutant("ALiBi favours later keys", SCORES, "Ops<V>::abs(distance)", "distance"),
]


class Bench:
    """Builds and runs one test file against a folder of headers."""

    def __init__(self, compiler: str, folder: pathlib.Path):
        self.compiler, self.folder = compiler, folder
        # GoogleTest is parsed once, in a header that is precompiled.
        common = folder / "common.h"
        common.write_text("#include <gtest/gtest.h>\n#include <array>\n#include <random>\n#include <functional>\n",
                          encoding="utf-8")
        subprocess.run([compiler, *FLAGS, "-x", "c++-header", str(common), "-o", f"{common}.gch"], check=True)

    def test(self, name: str, test: str, header: str = "", old: str = "", new: str = "") -> tuple[bool, str]:
        """Whether the tests pass, and what they said. A build that fails is an error, never a fault found."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        shutil.copytree(CORE, folder / "core")
        if header:
            text = (CORE / header).read_text(encoding="utf-8")
            if text.count(old) != 1:
                raise SystemExit(f"{name}: {header} holds {text.count(old)} times: {old}")
            (folder / "core" / header).write_text(text.replace(old, new), encoding="utf-8")
        binary = folder / "test"
        build = subprocess.run([self.compiler, *FLAGS, "-include", str(self.folder / "common.h"), f"-I{folder}",
                                f"-I{ROOT / 'tests'}", str(TESTS / test), "-o", str(binary),
                                "-lgtest", "-lgtest_main", "-lpthread"], capture_output=True, text=True, check=False)
        if build.returncode != 0:
            raise SystemExit(f"{name}: does not compile\n{build.stderr}")
        result = subprocess.run([str(binary), "--gtest_fail_fast", "--gtest_brief=1"], capture_output=True, text=True,
                                timeout=300, check=False)
        shutil.rmtree(folder)
        return result.returncode == 0, result.stdout


def first_failure(output: str) -> str:
    return next((line.removeprefix("[  FAILED  ] ").split(" (")[0] for line in output.splitlines()
                 if line.startswith("[  FAILED  ]")), "a crash")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="only faults whose name or header contains this")
    arguments = parser.parse_args()
    mutants = [m for m in MUTANTS if arguments.only in m.name or arguments.only in m.header]
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="tilewise_mutants_") as folder, \
            concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        bench = Bench(arguments.compiler, pathlib.Path(folder))
        tests = sorted({TEST_OF[m.header] for m in mutants})
        for test, (passed, output) in zip(tests, pool.map(lambda t: bench.test(t, t), tests)):
            if not passed:
                print(f"{test} fails without any fault:\n{output}")
                return 1
        results = pool.map(lambda m: bench.test(m.name, TEST_OF[m.header], m.header, m.old, m.new), mutants)
        for mutant, (passed, output) in zip(mutants, results):
            survivors += passed
            print(f"{'SURVIVED' if passed else 'found':8}  {mutant.header:18} {mutant.name}"
                  f"{'' if passed else ' (' + first_failure(output) + ')'}", flush=True)
    print(f"{len(mutants)} faults, {survivors} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
