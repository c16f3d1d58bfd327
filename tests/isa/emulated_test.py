#!/usr/bin/env python3
"""The command on processors that lack instruction sets, under qemu-user: emulated_test.py COMMAND INSTRUCTION_PROBE.

A processor without an instruction set never executes it (the emulator would end the process, which the probe proves
first), kernels of the sets that it has are chosen and give the oracle's results, and a forced kernel that it cannot run
is refused with a reason. Ends with `N passed, N failed`; exits with 77 when qemu-user is not installed.
"""

import array
import json
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

EMULATOR = shutil.which("qemu-x86_64")
COMMAND, PROBE = sys.argv[1:3]

# Processor as qemu knows it, instruction sets that it lacks, kernel that runs unless one is forced.
PROCESSORS = [
    ("core2duo", {"sse4", "avx2", "fma", "avx512"}, "cpu.scalar.forward"),
    ("Nehalem", {"avx2", "fma", "avx512"}, None),  # Highway's SSE4 code may use PCLMULQDQ, which it lacks
    ("Westmere", {"avx2", "fma", "avx512"}, "cpu.sse4.forward"),
    ("Haswell", {"avx512"}, "cpu.avx2.forward"),
]
MISSING = {"avx512": "AVX-512", "avx2": "AVX2", "sse4": "SSE4"}

# Short families: every case costs the emulator about 50 times what it costs the processor.
CASES = [
    ("Westmere", "cpu.sse4.forward", "sinks"),
    ("Westmere", "cpu.sse4.forward", "softcap"),
    ("Haswell", "cpu.avx2.forward", "softcap"),
]

SHAPE = ["--q-shape", "1,2,33,24", "--kv-shape", "1,1,70,24", "--dv", "24", "--dtype", "float32"]


def run(processor, program, *arguments):
    prefix = [EMULATOR, "-cpu", processor] if processor else []
    return subprocess.run([*prefix, program, *arguments], capture_output=True, text=True, timeout=300, check=False)


def write_npy(path, shape, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(shape)}, }}".encode()
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values.tobytes())


def inputs(folder):
    source = random.Random(7)
    arguments = []
    for name, shape in (("q", (1, 2, 33, 24)), ("k", (1, 1, 70, 24)), ("v", (1, 1, 70, 24))):
        count = shape[0] * shape[1] * shape[2] * shape[3]
        write_npy(folder / f"{name}.npy", shape, array.array("f", (source.gauss(0, 1) for _ in range(count))))
        arguments += [f"--{name}", str(folder / f"{name}.npy")]
    return arguments


class Report:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, what, holds, detail=""):
        if holds:
            self.passed += 1
            return
        self.failed += 1
        print(f"FAILED: {what}\n  {detail}")


def last_lines(process):
    return f"exit code {process.returncode}; " + (process.stdout + process.stderr).strip()[-600:]


def check_emulator(report):
    """Without this, nothing below could fail."""
    for processor, lacking, _ in PROCESSORS:
        for name in ("sse4", "avx2", "fma", "avx512"):
            process = run(processor, PROBE, name)
            if name in lacking:
                died = process.returncode in (-signal.SIGILL, 128 + signal.SIGILL)
                report.check(f"{processor} ends a program that uses {name}", died, last_lines(process))
            elif name != "avx512":
                report.check(f"{processor} executes {name}", process.returncode == 0, last_lines(process))


def check_choice(report, folder, tensors):
    reference = folder / "reference.npy"
    native = run(None, COMMAND, "run", *tensors, "--o", str(reference), "--kernel", "cpu.scalar")
    report.check("the processor runs the scalar kernel", native.returncode == 0, last_lines(native))
    if native.returncode != 0:
        return
    for processor, _, expected in PROCESSORS:
        info = run(processor, COMMAND, "info")
        report.check(f"{processor}: info", info.returncode == 0, last_lines(info))
        explained = run(processor, COMMAND, "explain", *SHAPE, "--json")
        report.check(f"{processor}: explain", explained.returncode == 0, last_lines(explained))
        if explained.returncode != 0:
            continue
        chosen = json.loads(explained.stdout)["chosen"]
        report.check(f"{processor}: {expected or 'some kernel'} is chosen", expected in (None, chosen), f"chose {chosen}")
        output = folder / f"{processor}.npy"
        process = run(processor, COMMAND, "run", *tensors, "--o", str(output), "--compare", str(reference),
                      "--tolerance", "1e-5")
        report.check(f"{processor}: an unforced run", process.returncode == 0 and output.exists(), last_lines(process))


def check_refusals(report, folder, tensors):
    for processor, lacking, _ in PROCESSORS:
        for name in sorted(lacking & MISSING.keys()):
            output = folder / f"{processor}-{name}.npy"
            process = run(processor, COMMAND, "run", *tensors, "--o", str(output), "--kernel", f"cpu.{name}")
            refused = process.returncode > 0 and f"no {MISSING[name]}" in process.stderr and not output.exists()
            report.check(f"{processor}: forced cpu.{name} is refused with the reason", refused, last_lines(process))


def check_cases(report):
    for processor, kernel, family in CASES:
        process = run(processor, COMMAND, "check", "--quick", "--kernel", kernel, "--family", family)
        counts = process.stdout.strip().splitlines()[-1].split() if process.stdout.strip() else []
        good = process.returncode == 0 and len(counts) == 6 and int(counts[0]) > 0 and counts[4] == "0"
        report.check(f"{processor}: {kernel} passes every case of {family}", good, last_lines(process))


def main():
    if EMULATOR is None:
        print("skipped: qemu-x86_64 is not installed (package qemu-user)")
        return 77
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # programs die here on purpose
    report = Report()
    check_emulator(report)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tensors = inputs(folder)
        check_choice(report, folder, tensors)
        check_refusals(report, folder, tensors)
    check_cases(report)
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
