#!/usr/bin/env python3
"""Writes the tables of docs/metal_counts.md from bench/results/metal_counts.json, between its markers.

    counts_table.py            rewrites the page
    counts_table.py --check    exits 1 when the page is not what it would write
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "metal_counts.md"
BEGIN, END = "<!-- tables: tests/metal_on_cpu/counts_table.py -->\n", "<!-- end of tables -->\n"
HEAD = (
    "| kernel | products | scalar operations per score | exponentials per score | share of multiply-adds in products "
    "| bytes per product: device, threadgroup read, written | group barriers of the longest simdgroup "
    "| issue slots of the longest simdgroup |\n|---|---|---|---|---|---|---|---|\n")


def number(value, digits):
    return "" if value is None else f"{value:.{digits}f}"


def thousands(value):
    return "" if value is None else f"{value:,}".replace(",", " ")


def counted_row(row):
    counts, ratios = row["counts"], row["ratios"]
    products = counts["matrix_products"]
    exact = ", the minimum" if products == row["minimum_products"] else ""
    traffic = " / ".join(number(ratios[name], 0) for name in (
        "device_bytes_per_product", "threadgroup_bytes_read_per_product", "threadgroup_bytes_written_per_product"))
    return (row["kernel"], thousands(products) + exact if products else "none", number(ratios["scalar_per_score"], 2),
            number(ratios["exponentials_per_score"], 3), f"{100 * ratios['product_share']:.1f}%", traffic,
            thousands(counts["longest_barriers"]), thousands(counts["longest_slots"]))


def cited_row(row):
    figures = row["figures"]
    product_share = figures.get("product_share")
    traffic = " / ".join(number(figures[name], 0) for name in (
        "device_bytes_per_product", "threadgroup_bytes_read_per_product", "threadgroup_bytes_written_per_product"
    ) if name in figures)
    return (row["kernel"] + " (cited)", thousands(figures.get("matrix_products")),
            number(figures.get("scalar_per_score"), 1), number(figures.get("exponentials_per_score"), 2),
            f"{100 * product_share:.1f}%" if product_share else "", traffic,
            thousands(figures.get("barriers_per_simdgroup")), thousands(figures.get("longest_slots")))


def problem_of(row):
    return (row["n"], row["d"], row["mask"])


def tables(data):
    out = []
    for n in (2048, 200):
        for d in (32, 64, 128):
            for mask in ("causal", "full"):
                problem = (n, d, mask)
                rows = [counted_row(row) for row in data["rows"] if problem_of(row) == problem]
                rows += [cited_row(row) for row in data["cited"] if problem_of(row) == problem]
                out.append(f"\n### N = {n}, D = {d}, {mask}\n\n" + HEAD)
                out += ["| " + " | ".join(row) + " |\n" for row in rows]
    return "".join(out) + "\n"


def main():
    page = PAGE.read_text(encoding="utf-8")
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    data = json.loads((ROOT / "bench" / "results" / "metal_counts.json").read_text(encoding="utf-8"))
    new = page[:begin] + tables(data) + page[end:]
    if sys.argv[1:] == ["--check"]:
        if new != page:
            print("FAILED docs/metal_counts.md is not what tests/metal_on_cpu/counts_table.py writes")
        print("1 passed, 0 failed, 0 skipped" if new == page else "0 passed, 1 failed, 0 skipped")
        sys.exit(new != page)
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
