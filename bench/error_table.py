#!/usr/bin/env python3
"""Errors of every kernel against the float64 oracle, as a Markdown table, from the JSON of `tilewise check`.

    build/release/bin/tilewise check --json build/check.json
    bench/error_table.py build/check.json > bench/results/errors.md

One row a kernel and dtype. Inputs: Gaussian (family plain), structured (outlier channels, attention sinks, V with a
large mean, ...), and all families together. A cell is the median and the largest relative L2 error of its cases, and
the largest share of what the rule of precision allows (docs/numerics.md) that one of them used. The largest error over
all families is left out: there are cases whose exact result underflows, where 0 is right and the relative error 1.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

COLUMNS = {"Gaussian": {"plain"}, "structured": {"structured"}, "all families": None}


def cell(results: list[dict], with_largest: bool) -> str:
    errors = [r["rel_l2_error"] for r in results if r["rel_l2_error"] > 0]
    if not errors:
        return "-"
    share = max(r["budget_share"] for r in results)
    largest = f", {max(errors):.1e}" if with_largest else ""
    return f"{statistics.median(errors):.1e}{largest}; {share:.0%}"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    check = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    machine = check["machine"]
    print("# Errors against the float64 oracle\n")
    print(f"{machine['cpu']}, {machine['isa']}, {machine['compiler']}, tilewise {machine['version']}, {machine['date']}: "
          f"{check['passed']} passed, {check['failed']} failed, {check['skipped']} skipped.")
    print("Median and largest relative L2 error; largest share of the budget that one case used.\n")
    print("| kernel | dtype | " + " | ".join(COLUMNS) + " |")
    print("|---|---|" + "---|" * len(COLUMNS))
    judged = [r for r in check["results"] if r["outcome"] != "skipped"]
    for kernel, dtype in dict.fromkeys((r["kernel"], r["dtype"]) for r in judged):
        own = [r for r in judged if (r["kernel"], r["dtype"]) == (kernel, dtype)]
        cells = [cell([r for r in own if families is None or r["family"] in families], families is not None)
                 for families in COLUMNS.values()]
        print(f"| `{kernel}` | {dtype} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
