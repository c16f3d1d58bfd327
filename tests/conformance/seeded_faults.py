#!/usr/bin/env python3
"""Proves that the conformance suite can fail: seeds faults into the scalar kernel, one at a time, and demands that the
families named for each fault find it.

Only the mutated translation unit is compiled, with the build's own command; it is linked with the build's objects before
the library, whose own copy of the kernel is then not pulled in. Needs a static, unsanitized build that has made the
target conformance_driver. Exit status: 0 when every fault was caught, 1 when one survived, 2 when a fault's text is no
longer in the sources or something does not compile.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass

KERNEL = "cpu.scalar.forward"
UNIT = "src/cpu/scalar_forward.cpp"


@dataclass(frozen=True)
class Fault:
    name: str
    file: str  # relative to the source directory
    text: str  # must occur exactly once
    replacement: str
    families: tuple[str, ...]


FAULTS = [
    Fault(
        "no rescale of the output when the maximum grows",
        UNIT,
        "scratch.o[c] = scratch.o[c] * alpha + scratch.block_o[c]",
        "scratch.o[c] = scratch.o[c] + scratch.block_o[c] + 0 * alpha",
        ("tails",),
    ),
    Fault(
        "no rescale of the sum when the maximum grows",
        "src/core/row_softmax-inl.h",
        "const V alpha = weight(rows.m, m, unit);\n  return {{m, Ops<V>::mul(rows.l, alpha)}, alpha};",
        "const V alpha = weight(rows.m, m, unit);\n  return {{m, rows.l}, alpha};",
        ("tails",),
    ),
    Fault(
        "a padding key is scored",
        "src/core/band.h",
        "  const tw_i64 end = clamp_i64(add_saturated(last_key(band, i), 1), 0, k_len);\n"
        "  return {begin, max_i64(begin, end)};\n"
        "}\n\n"
        "// Keys in [0, k_len) that at least",
        "  const tw_i64 end = clamp_i64(add_saturated(last_key(band, i), 1), 0, k_len + 1);\n"
        "  return {begin, max_i64(begin, end)};\n"
        "}\n\n"
        "// Keys in [0, k_len) that at least",
        ("lengths",),
    ),
    Fault(
        "the wrong corner",
        "src/core/index_map.h",
        "return corner == corner_bottom_right ? k_len - q_len : 0;",
        "return corner == corner_top_left ? k_len - q_len : 0;",
        ("band",),
    ),
    Fault(
        "the corner is taken from the slot, not from the lengths",
        "src/kernel/sequence.hpp",
        "core::band_delta(p.corner, p.delta, sequence.q_len, sequence.k_len)",
        "core::band_delta(p.corner, p.delta, sequence.q_slot, sequence.k_len)",
        ("lengths",),
    ),
    Fault(
        "a dropped tail of keys",
        UNIT,
        "begin < keys.end; begin += key_block)",
        "begin + (keys.end > key_block ? key_block - 1 : 0) < keys.end; begin += key_block)",
        ("tails",),
    ),
    Fault(
        "a swallowed NaN",
        "src/core/row_softmax-inl.h",
        "return Ops<V>::exp2(Ops<V>::mul(Ops<V>::sub(score, m), unit));",
        "const V x = Ops<V>::exp2(Ops<V>::mul(Ops<V>::sub(score, m), unit));\n  return x >= Ops<V>::zero() ? x : Ops<V>::zero();",
        ("nonfinite",),
    ),
    Fault(
        "K's offset in 32 bits",
        UNIT,
        "const std::int64_t at = key_offset(k_, row, j);",
        "const std::int64_t at = static_cast<std::uint32_t>(key_offset(k_, row, j));",
        ("large offset",),
    ),
    Fault(
        "the mask's offset in 32 bits",
        UNIT,
        "buffers_.mask)[core::offset_of(strides_of(p_.mask), row.b, row.h, row.i, j)]",
        "buffers_.mask)[static_cast<std::uint32_t>(core::offset_of(strides_of(p_.mask), row.b, row.h, row.i, j))]",
        ("large offset",),
    ),
    Fault(
        "K's row stride is taken to be D",
        UNIT,
        "k_(strides_of(problem.k)),",
        "k_{problem.k.strides[0], problem.k.strides[1], problem.head_dim, problem.k.strides[3]},",
        ("layouts",),
    ),
    Fault(
        "V's column stride is taken to be 1",
        UNIT,
        "Element<Stored>::load(v[at + c * v_.d])",
        "Element<Stored>::load(v[at + c])",
        ("layouts",),
    ),
    Fault(
        "the mask's head stride is ignored",
        UNIT,
        "buffers_.mask)[core::offset_of(strides_of(p_.mask), row.b, row.h, row.i, j)]",
        "buffers_.mask)[core::offset_of(strides_of(p_.mask), row.b, 0, row.i, j)]",
        ("masks",),
    ),
    Fault(
        "V is read with K's strides",
        UNIT,
        "v_(strides_of(problem.v)),",
        "v_(strides_of(problem.k)),",
        ("layouts",),
    ),
    Fault(
        "grouped heads are dealt in turn",
        "src/core/index_map.h",
        "return q_head / (q_heads / kv_heads);",
        "return q_head % kv_heads + 0 * q_heads;",
        ("gqa",),
    ),
    Fault(
        "an empty row is not 0",
        "src/core/row_softmax-inl.h",
        "Ops<V>::select_equal(rows.l, Ops<V>::zero(), Ops<V>::zero(), Ops<V>::div(Ops<V>::one(), rows.l))",
        "Ops<V>::div(Ops<V>::one(), rows.l)",
        ("masks",),
    ),
    Fault(
        "LSE in log2",
        UNIT,
        "core::scalar::lse(rows, T(1))",
        "core::scalar::lse(rows, T(1)) * unit()",
        ("invariants",),
    ),
    Fault(
        "bias before softcap",
        UNIT,
        "T s = static_cast<T>(p_.scale) * dot;",
        "T s = static_cast<T>(p_.scale) * dot + (p_.softcap > 0 ? added_bias : T(0));",
        ("softcap",),
    ),
    Fault(
        "the sink joins every key block",
        UNIT,
        "rows = core::scalar::add(grown.rows, sum);",
        "rows = core::scalar::add(grown.rows, sum);\n"
        "      if (p_.sinks.present()) rows = core::scalar::merge(rows, first_rows(row)).rows;",
        ("sinks",),
    ),
    Fault(
        "0 * NaN leaks from masked keys",
        UNIT,
        "      if (!scratch.seen[slot]) continue;\n      const T w = core::scalar::weight(scratch.scores[slot], m, unit());",
        "      const T w = scratch.seen[slot] ? core::scalar::weight(scratch.scores[slot], m, unit()) : T(0);",
        ("isolation",),
    ),
    Fault(
        "dropout is applied to the sum as well",
        UNIT,
        "      sum += w;\n      if (dropped(row, j)) continue;",
        "      if (dropped(row, j)) continue;\n      sum += w;",
        ("dropout",),
    ),
    Fault(
        "dropout counts the batch without its heads",
        UNIT,
        "row.b * p_.q_heads + row.h, row.i, j) < threshold",
        "row.b + row.h, row.i, j) < threshold",
        ("dropout",),
    ),
    Fault(
        "the page of the next key",
        UNIT,
        "core::paged_row(j, p_.page_size())",
        "core::paged_row(j + 1, p_.page_size())",
        ("paged",),
    ),
    Fault(
        "ALiBi measured from the top left",
        "src/core/index_map.h",
        "return corner == corner_explicit ? explicit_delta : k_len - q_len;",
        "return corner == corner_explicit ? explicit_delta : 0 * (k_len - q_len);",
        ("alibi",),
    ),
    Fault(
        "the lowest finite bias masks",
        UNIT,
        "added_bias != -std::numeric_limits<T>::infinity()",
        "added_bias > std::numeric_limits<T>::lowest()",
        ("bias",),
    ),
    Fault(
        "padding rows have an LSE of +inf",
        "src/cpu/padding.hpp",
        "-std::numeric_limits<float>::infinity();",
        "+std::numeric_limits<float>::infinity();",
        ("lengths", "packed"),
    ),
    Fault(
        "accumulation in the stored type",
        UNIT,
        "T s = static_cast<T>(p_.scale) * dot;",
        "T s = Element<Stored>::load(Element<Stored>::store(static_cast<T>(p_.scale) * dot));",
        ("plain",),
    ),
    Fault(
        "the scale's sign is lost",
        UNIT,
        "T s = static_cast<T>(p_.scale) * dot;",
        "T s = static_cast<T>(std::abs(p_.scale)) * dot;",
        ("numeric",),
    ),
]


class Unusable(Exception):
    """The harness cannot judge a fault; says why."""


def mutated(source: pathlib.Path, fault: Fault, overlay: pathlib.Path) -> pathlib.Path:
    """Writes the changed file under `overlay` and returns the unit to compile."""
    original = (source / fault.file).read_text()
    found = original.count(fault.text)
    if found != 1:
        raise Unusable(f"{fault.name}: its text occurs {found} times in {fault.file}, expected once")
    changed = overlay / fault.file
    changed.parent.mkdir(parents=True, exist_ok=True)
    changed.write_text(original.replace(fault.text, fault.replacement))
    return changed if fault.file == UNIT else source / UNIT


def compile_command(build: pathlib.Path, source: pathlib.Path) -> tuple[list[str], str]:
    unit = str(source / UNIT)
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"] == unit:
            arguments = shlex.split(entry["command"])
            return arguments, entry["directory"]
    raise Unusable(f"{build}/compile_commands.json does not hold {unit}")


def run(arguments: list[str], cwd: str | None = None, seconds: int = 600) -> subprocess.CompletedProcess:
    return subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, timeout=seconds, check=False)


def build_driver(fault: Fault, args: argparse.Namespace, overlay: pathlib.Path) -> pathlib.Path:
    unit = mutated(args.source, fault, overlay)
    arguments, directory = compile_command(args.build, args.source)
    item = overlay / "mutated.o"
    arguments[arguments.index("-o") + 1] = str(item)
    arguments[arguments.index("-c") + 1] = str(unit)
    # The overlay's headers come first; a mutated operand may go unused.
    first = next(n for n, argument in enumerate(arguments) if argument.startswith("-I"))
    arguments.insert(first, f"-I{overlay / 'src'}")
    arguments = [argument for argument in arguments if argument != "-Werror"]
    result = run(arguments, cwd=directory)
    if result.returncode != 0:
        raise Unusable(f"{fault.name}: does not compile\n{result.stderr}")

    compiler = next(a for a in arguments if not a.endswith("ccache"))
    driver = overlay / "driver"
    objects = args.build / "tests/conformance/CMakeFiles/conformance_driver.dir/conformance_driver.cpp.o"
    libraries = [str(args.build / "lib" / name) for name in ("libtilewise_verify.a", "libtilewise.a")]
    result = run([compiler, "-o", str(driver), str(objects), str(item), *libraries, "-pthread"])
    if result.returncode != 0:
        raise Unusable(f"{fault.name}: does not link\n{result.stderr}")
    return driver


def verdict_of(fault: Fault, args: argparse.Namespace) -> tuple[str, str]:
    with tempfile.TemporaryDirectory(prefix="seeded_fault_") as folder:
        driver = build_driver(fault, args, pathlib.Path(folder))
        try:
            result = run([str(driver), KERNEL, *fault.families], seconds=args.seconds)
        except subprocess.TimeoutExpired:
            return "caught", "it did not end"
        if result.returncode == 0:
            return "survived", ""
        if result.returncode < 0:
            return "caught", f"it died of signal {-result.returncode}"
        if result.returncode == 1:
            return "caught", result.stdout.strip().splitlines()[-1]
        raise Unusable(f"{fault.name}: the driver failed: {result.stderr.strip()}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--build", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=int, default=300, help="limit of one run")
    args = parser.parse_args()
    faults = [fault for fault in FAULTS if args.only in fault.name]
    if not faults:
        print(f"no fault's name contains '{args.only}'", file=sys.stderr)
        return 2

    # A suite that fails on the right kernel would "catch" anything.
    families = sorted({family for fault in faults for family in fault.families})
    sound = run([str(args.build / "bin/conformance_driver"), KERNEL, *families], seconds=args.seconds * 2)
    if sound.returncode != 0:
        print(f"the unchanged kernel fails: {sound.stdout}{sound.stderr}", file=sys.stderr)
        return 2

    status = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for fault, pending in [(fault, pool.submit(verdict_of, fault, args)) for fault in faults]:
            try:
                verdict, detail = pending.result()
            except Unusable as error:
                print(f"ERROR     {error}")
                status = 2
                continue
            print(f"{verdict:9} {fault.name}: {detail[:150]}", flush=True)
            if verdict == "survived":
                status = max(status, 1)
    return status


if __name__ == "__main__":
    sys.exit(main())
