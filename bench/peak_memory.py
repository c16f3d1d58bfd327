#!/usr/bin/env python3
"""Peak memory of one attention call beyond its inputs and outputs, at 131072 keys.

Each case runs in a process of its own: inputs and output are allocated and touched, the kernel's high-water mark of
resident memory is reset, the call is planned and run, and the mark is read. What it grew by is scratch, workspace,
thread stacks, and the library's own code and data as they are first used: all of it counts. Linux only; needs numpy.

    bench/peak_memory.py                         # queries 1, 128 and 4096; one and two threads
    bench/peak_memory.py --queries 131072        # the whole square: minutes
    bench/peak_memory.py --dtype bfloat16 --json FILE
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from shim import Problem, Shim, build

LIMIT_KIB_PER_THREAD = 4096
ELEMENT_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}


def resident(what: str) -> int:
    """KiB: VmRSS now, or VmHWM, the most since the mark was reset."""
    found = re.search(rf"^{what}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


def random_tensor(shape: tuple[int, ...], dtype: str, seed: int):
    """Finite values of the dtype, about N(0, 1); 16-bit types as raw bits."""
    import numpy as np

    generator = np.random.default_rng(seed)
    if dtype in ("float32", "float64"):
        return generator.standard_normal(shape, np.dtype(dtype))
    values = generator.standard_normal(shape, np.float32)
    return values.astype(np.float16) if dtype == "float16" else (values.view(np.uint32) >> 16).astype(np.uint16)


def run_case(arguments: argparse.Namespace) -> dict:
    """In the child: one call, measured."""
    import numpy as np

    queries, threads = arguments.queries[0], arguments.threads[0]
    p = Problem("peak_memory", 1, 1, 1, queries, arguments.keys, arguments.head_dim, arguments.head_dim,
                arguments.dtype)
    shapes = [(p.Sq, p.D), (p.Sk, p.D), (p.Sk, p.Dv)]
    tensors = [random_tensor(shape, p.dtype, seed) for seed, shape in enumerate(shapes)]
    o = np.full((p.Sq, p.Dv), 1, tensors[0].dtype)  # written, so that its pages are there
    addresses = tuple(t.ctypes.data for t in (*tensors, o))
    shim = Shim()
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    if (early := resident("VmHWM")) > before + 256:
        sys.exit(f"the high-water mark did not reset: {early} KiB, resident {before} KiB")
    plan = shim.plan(p, addresses, threads, arguments.kernel)
    plan()
    grown = resident("VmHWM") - before
    values = (o.astype(np.uint32) << 16).view(np.float32) if p.dtype == "bfloat16" else o
    if not np.isfinite(values).all():
        sys.exit("the result is not finite")
    return {"problem": p.to_json(), "kernel": plan.kernel, "threads": threads, "grown_kib": grown,
            "workspace_bytes": plan.workspace_bytes,
            "tensors_bytes": sum(t.nbytes for t in tensors) + o.nbytes,
            "scores_bytes": p.Sq * p.Sk * ELEMENT_BYTES[p.dtype]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 128, 4096], metavar="N")
    parser.add_argument("--keys", type=int, default=131072, metavar="N")
    parser.add_argument("--head-dim", type=int, default=64, metavar="D")
    parser.add_argument("--dtype", default="float32", choices=sorted(ELEMENT_BYTES))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--kernel", default="", metavar="NAME", help="a tilewise kernel; default: the library's choice")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(run_case(arguments)))
        return 0

    build()
    rows, passed = [], True
    print(f"{'kernel':28} {'dtype':9} {'queries':>8} {'keys':>8} {'threads':>7} {'grown KiB':>10} {'per thread':>10}  "
          f"{'q, k, v, o KiB':>14} {'scores KiB':>12}")
    for queries in arguments.queries:
        for threads in arguments.threads:
            child = [sys.executable, __file__, "--child", "--queries", str(queries), "--keys", str(arguments.keys),
                     "--head-dim", str(arguments.head_dim), "--dtype", arguments.dtype, "--threads", str(threads),
                     "--kernel", arguments.kernel]
            done = subprocess.run(child, stdout=subprocess.PIPE, text=True)
            if done.returncode:
                return 1
            row = json.loads(done.stdout)
            rows.append(row)
            share = row["grown_kib"] / threads
            passed &= share < LIMIT_KIB_PER_THREAD
            print(f"{row['kernel']:28} {arguments.dtype:9} {queries:8} {arguments.keys:8} {threads:7} "
                  f"{row['grown_kib']:10} {share:10.0f}  {row['tensors_bytes'] // 1024:14} "
                  f"{row['scores_bytes'] // 1024:12}", flush=True)
    print(f"{'every' if passed else 'NOT every'} case is below {LIMIT_KIB_PER_THREAD} KiB per thread")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        document = {"schema": 1, "machine": {"cpu": cpu[1] if cpu else "unknown"}, "rows": rows}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
