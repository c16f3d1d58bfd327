#!/usr/bin/env python3
"""tilewise beside PyTorch on the CPU, in one process, on the same inputs, interleaved batch by batch.

Contenders: tilewise's kernels; PyTorch's explicit formula, softmax(q k^T * scale + mask) v, its mask built in every
call; torch.nn.functional.scaled_dot_product_attention. Needs torch and numpy.

    bench/peers/torch_sdpa.py                                      # founding grid, one thread
    bench/peers/torch_sdpa.py --threads 1 2 --json FILE.json --plot PATH
    bench/peers/torch_sdpa.py --grid long --dtype bfloat16
    bench/peers/torch_sdpa.py --kernel ladder cpu.avx512           # every rung, and every kernel named so
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from shim import ROOT, Problem, Refused, Shim, build

WARM_UP_CALLS, WARM_UP_S = 3, 0.05
BATCHES, BATCH_S = 7, 0.02
SETTLE_S = 0.03  # with several threads: PyTorch's workers spin for milliseconds after a call, in the next one's way
BUSY_LOAD = 0.7  # one-minute load average; a machine at rest is below it
ERROR_ROWS = 64
SEED = 1


@dataclass
class Contender:
    library: str
    kernel: str
    call: Callable[[], object]
    result: Callable[[], torch.Tensor]  # o [B, Hq, Sq, Dv] of a call
    calls: int = 1
    seconds: list[float] = field(default_factory=list)  # per call, one entry a batch

    def batch(self) -> float:
        call = self.call
        start = time.perf_counter()
        for _ in range(self.calls):
            call()
        return (time.perf_counter() - start) / self.calls

    def prepare(self) -> None:
        """Warms up and settles how many calls make a batch."""
        done, start = 0, time.perf_counter()
        while done < WARM_UP_CALLS or time.perf_counter() - start < WARM_UP_S:
            self.call()
            done += 1
        self.calls = 1
        while (elapsed := self.batch() * self.calls) < BATCH_S:
            self.calls = max(self.calls + 1, math.ceil(1.1 * self.calls * BATCH_S / elapsed))


def visibility(p: Problem) -> torch.Tensor:
    """bool [Sq, Sk], true where query i sees key j."""
    distance = torch.arange(p.Sk)[None, :] - torch.arange(p.Sq)[:, None] - p.delta
    visible = torch.ones(p.Sq, p.Sk, dtype=torch.bool)
    if p.left is not None:
        visible &= distance >= -p.left
    if p.right is not None:
        visible &= distance <= p.right
    return visible


def explicit(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, p: Problem) -> torch.Tensor:
    if p.Hq != p.Hkv:
        k, v = (t.repeat_interleave(p.Hq // p.Hkv, dim=1) for t in (k, v))
    s = q @ k.transpose(-2, -1) * p.D**-0.5
    if p.causal and p.delta == 0:
        s = s.masked_fill(torch.ones(p.Sq, p.Sk, dtype=torch.bool).triu(1), -torch.inf)
    elif p.bounded:
        s = s.masked_fill(~visibility(p), -torch.inf)
    return torch.softmax(s, dim=-1) @ v


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, p: Problem) -> torch.Tensor:
    function = torch.nn.functional.scaled_dot_product_attention
    grouped = p.Hq != p.Hkv
    if p.causal and p.delta == 0:
        return function(q, k, v, is_causal=True, enable_gqa=grouped)
    return function(q, k, v, attn_mask=visibility(p) if p.bounded else None, enable_gqa=grouped)


def exact_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, p: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The formula in float64 on 64 rows spread over [B * Hq * Sq], first and last included: (rows, o [rows, Dv])."""
    total = p.B * p.Hq * p.Sq
    rows = np.unique(np.linspace(0, total - 1, min(ERROR_ROWS, total)).round().astype(np.int64))
    result = np.zeros((len(rows), p.Dv))
    for n, row in enumerate(rows):
        b, h, i = row // (p.Hq * p.Sq), row // p.Sq % p.Hq, row % p.Sq
        first = 0 if p.left is None else max(0, i + p.delta - p.left)
        end = p.Sk if p.right is None else max(first, min(p.Sk, i + p.delta + p.right + 1))
        if end <= first:
            continue
        group = h // (p.Hq // p.Hkv)
        keys, values = (t[b, group, first:end].double().numpy() for t in (k, v))
        s = keys @ q[b, h, i].double().numpy() * p.D**-0.5
        weights = np.exp(s - s.max())
        result[n] = weights / weights.sum() @ values
    return rows, result


def contenders(
    shim: Shim, p: Problem, threads: int, kernels: list[str], peers: list[str]
) -> tuple[list[Contender], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Everyone who takes part, on the same q, k, v; and these. An empty kernel name is the library's choice."""
    generator = torch.Generator().manual_seed(SEED)
    dtype = getattr(torch, p.dtype)
    shapes = ((p.B, p.Hq, p.Sq, p.D), (p.B, p.Hkv, p.Sk, p.D), (p.B, p.Hkv, p.Sk, p.Dv))
    drawn = torch.float64 if dtype == torch.float64 else torch.float32
    q, k, v = (torch.randn(shape, generator=generator, dtype=drawn).to(dtype) for shape in shapes)
    found: list[Contender] = []
    for name in kernels:
        o = torch.empty(p.B, p.Hq, p.Sq, p.Dv, dtype=dtype)
        try:
            plan = shim.plan(p, tuple(t.data_ptr() for t in (q, k, v, o)), threads, name)
        except Refused as refusal:
            # The message gives every kernel's reason; one that was named needs only its own.
            reasons = [part for part in str(refusal).split("; ") if part.startswith(f"{name}: ")]
            print(f"    {p.name}: {reasons[0] if reasons else refusal}", file=sys.stderr)
            continue
        if plan.kernel not in [c.kernel for c in found]:
            found.append(Contender("tilewise", plan.kernel, plan, lambda o=o: o))
    for name, function in (("explicit", explicit), ("sdpa", sdpa)):
        if name in peers:
            call = lambda function=function: function(q, k, v, p)  # noqa: E731
            found.append(Contender(f"torch-{name}", "eager", call, call))
    return found, (q, k, v)


def measure(shim: Shim, p: Problem, threads: int, kernels: list[str], peers: list[str]) -> list[dict]:
    torch.set_num_threads(threads)
    found, inputs = contenders(shim, p, threads, kernels, peers)
    for contender in found:
        settle(threads)
        contender.prepare()
    for _ in range(BATCHES):
        for contender in found:
            settle(threads)
            contender.call()  # back into the caches and awake, whoever ran before
            contender.seconds.append(contender.batch())
    rows, exact = exact_rows(*inputs, p)
    return [to_row(p, c, threads, rows, exact) for c in found]


def settle(threads: int) -> None:
    if threads > 1:
        time.sleep(SETTLE_S)


def to_row(p: Problem, c: Contender, threads: int, rows: np.ndarray, exact: np.ndarray) -> dict:
    o = c.result().reshape(-1, p.Dv)[torch.from_numpy(rows)].double().numpy()
    norm = float(np.linalg.norm(exact))
    median = statistics.median(c.seconds)
    return {
        "problem": p.to_json(),
        "library": c.library,
        "kernel": c.kernel,
        "device": "cpu",
        "threads": threads,
        "batches": len(c.seconds),
        "calls_per_batch": c.calls,
        "median_us": median * 1e6,
        "min_us": min(c.seconds) * 1e6,
        "max_us": max(c.seconds) * 1e6,
        "gflops": p.flops / median / 1e9,
        "rel_l2_error": float(np.linalg.norm(o - exact)) / norm if norm > 0 else float(np.linalg.norm(o)),
    }


def print_rows(rows: list[dict]) -> None:
    """One line a contender; ratio is tilewise's best kernel over this one's time: below 1, tilewise is ahead."""
    ours = [r["median_us"] for r in rows if r["library"] == "tilewise"]
    for row in rows:
        p = row["problem"]
        peer = row["library"] != "tilewise"
        ratio = f"{min(ours) / row['median_us']:9.2f}" if peer and ours else f"{'':9}"
        label = row["library"] if peer else row["kernel"]
        print(f"{p['name']:28} {p['dtype']:9} {row['threads']:3} {label:34} {row['median_us']:11.1f} "
              f"[{row['min_us']:.1f}, {row['max_us']:.1f}]".ljust(112)
              + f"{row['gflops']:8.1f} {row['rel_l2_error']:9.1e} {ratio}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grid", default="founding", help="a file of bench/grids (default: founding)")
    parser.add_argument("--only", metavar="TEXT", help="only problems whose name contains TEXT")
    parser.add_argument("--dtype", choices=("float32", "float64", "float16", "bfloat16"))
    parser.add_argument("--threads", type=int, nargs="+", default=[1], metavar="N")
    parser.add_argument("--kernel", nargs="+", default=[], metavar="NAME",
                        help="also every tilewise kernel of this name or prefix, beside the library's choice")
    parser.add_argument("--peers", nargs="*", default=["explicit", "sdpa"], choices=("explicit", "sdpa"))
    parser.add_argument("--full", action="store_true", help="do not shrink problems of 2^37 FLOPs and more")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="PATH",
                        help="without extension: PATH.svg and PATH.png, drawn by bench/plot.py; needs --json")
    arguments = parser.parse_args()
    if arguments.plot and not arguments.json:
        parser.error("--plot needs --json")
    build()
    shim = Shim()
    problems = [p for p in shim.grid(arguments.grid, arguments.full) if not arguments.only or arguments.only in p.name]
    for p in problems:
        if not p.plain:
            print(f"    {p.name}: left out, it has options beyond a band", file=sys.stderr)
    problems = [replace(p, dtype=arguments.dtype or p.dtype) for p in problems if p.plain]
    if not problems:
        parser.error(f"{arguments.grid} has no forward problem to compare whose name contains {arguments.only or ''!r}")
    kernels = ["", *(name for prefix in arguments.kernel for name in shim.kernels(prefix))]
    load = os.getloadavg()[0]
    if load > BUSY_LOAD:
        print(f"warning: load average {load:.1f}: other processes run here, and PyTorch's threads suffer most from it",
              file=sys.stderr)
    machine = shim.machine()
    print(f"{machine['cpu']}, {machine['isa']}; torch {torch.__version__}; ratio: best tilewise time / this time")
    print(f"{'problem':28} {'dtype':9} thr {'contender':34} {'median us':>11} [min, max]".ljust(112)
          + f"{'GFLOP/s':>8} {'rel. L2':>9} {'ratio':>9}")
    rows = []
    with torch.inference_mode():
        for threads in arguments.threads:
            for problem in problems:
                measured = measure(shim, problem, threads, kernels, arguments.peers)
                print_rows(measured)
                rows += measured
    if arguments.json:
        document = {"schema": 1, "machine": machine, "peers": {"torch": torch.__version__}, "load_before": load,
                    "rows": rows}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    if arguments.plot:
        own = ROOT / ".venv" / "bin" / "python"  # has matplotlib, which torch's environment may lack
        python = own if own.exists() else sys.executable
        subprocess.run([python, ROOT / "bench" / "plot.py", arguments.json, "--output", arguments.plot], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
