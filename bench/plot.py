#!/usr/bin/env python3
"""Draws benchmark files as time over length: one panel per head size and mask, one line per kernel or library.

    bench/plot.py founding.json [peers.json ...] --output plots/founding

writes plots/founding.svg and plots/founding.png. The files are those of `tilewise bench --json` (schema 1); rows of
several files share the panels. A point is the median of the batches, its bar reaches from the fastest to the slowest.
Axes are logarithmic. Needs matplotlib.
"""

import argparse
import json
import sys
from pathlib import Path

# Okabe and Ito (2008): eight colours that people with any colour vision tell apart; markers and dashes say it again.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
DASHES = ["-", "--", "-.", ":"]


def load_rows(paths):
    """All rows of the files and the machines that they name. Exits with a message on a file of another kind."""
    rows, machines = [], []
    for path in paths:
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            sys.exit(f"plot.py: {path}: {error}")
        if not isinstance(data, dict) or data.get("schema") != 1 or "rows" not in data:
            sys.exit(f"plot.py: {path}: not a benchmark file of schema 1")
        rows += data["rows"]
        cpu = data["machine"]["cpu"]
        if cpu not in machines:
            machines.append(cpu)
    if not rows:
        sys.exit("plot.py: no rows in the files")
    return rows, machines


def is_causal(problem):
    return problem["band"] == [None, 0]


def mask_name(problem):
    left, right = problem["band"]
    if left is None and right is None:
        return "full"
    return "causal" if is_causal(problem) else f"band {left}, {right}"


def panel_of(problem):
    """What a panel holds fixed; within it, only the length varies."""
    return (
        problem["D"],
        problem["Dv"],
        0 if mask_name(problem) == "causal" else 1,
        mask_name(problem),
        problem["B"],
        problem["Hq"],
        problem["Hkv"],
        problem["Sq"] == 1,
        problem["dtype"],
    )


def panel_title(panel):
    d, dv, _, mask, batch, q_heads, kv_heads, decode, dtype = panel
    parts = [f"D = {d}" if d == dv else f"D = {d}, Dv = {dv}", mask if not decode else "one query"]
    if batch > 1:
        parts.append(f"B = {batch}")
    if q_heads > 1:
        parts.append(f"H = {q_heads}" if q_heads == kv_heads else f"H = {q_heads}/{kv_heads}")
    if dtype != "float32":
        parts.append(dtype)
    return ", ".join(parts)


def length_of(problem):
    return problem["Sk"] if problem["Sq"] == 1 else problem["Sq"]


def series_name(row):
    name = row["kernel"] if row["library"] == "tilewise" else f"{row['library']} {row['kernel']}"
    return name if row["threads"] == 1 else f"{name}, {row['threads']} threads"


def length_label(value):
    return f"{value // 1024}k" if value >= 10240 and value % 1024 == 0 else str(value)


def time_label(microseconds, _position=None):
    for unit, size in (("s", 1e6), ("ms", 1e3), ("µs", 1.0), ("ns", 1e-3)):
        if microseconds >= 0.9999 * size:
            return f"{microseconds / size:g} {unit}"
    return f"{microseconds:g} µs"


def draw_panel(axes, rows, styles):
    lengths = sorted({length_of(row["problem"]) for row in rows})
    for name, style in styles.items():
        points = sorted((row for row in rows if series_name(row) == name), key=lambda row: length_of(row["problem"]))
        if not points:
            continue
        medians = [row["median_us"] for row in points]
        below = [row["median_us"] - row["min_us"] for row in points]
        above = [row["max_us"] - row["median_us"] for row in points]
        axes.errorbar(
            [length_of(row["problem"]) for row in points],
            medians,
            yerr=[below, above],
            label=name,
            capsize=2.5,
            elinewidth=1,
            linewidth=1.6,
            markersize=4.5,
            **style,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths, [length_label(length) for length in lengths])
    axes.minorticks_off()
    axes.grid(True, which="major", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw(rows, machines):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    matplotlib.rcParams.update(
        {"font.size": 9, "axes.titlesize": 10, "svg.fonttype": "none", "svg.hashsalt": "tilewise"}
    )
    names = list(dict.fromkeys(series_name(row) for row in rows))
    styles = {
        name: {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[i % len(MARKERS)],
            "linestyle": DASHES[i // len(COLOURS) % len(DASHES)],
        }
        for i, name in enumerate(names)
    }
    panels = sorted({panel_of(row["problem"]) for row in rows}, key=str)
    panels.sort(key=lambda panel: panel[:3])
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    figure, grid = pyplot.subplots(
        lines,
        columns,
        figsize=(4.6 * columns + 0.4, 3.1 * lines + 1.1),
        squeeze=False,
        sharey=len(panels) <= 4,
        layout="constrained",
    )
    for axes, panel in zip(grid.flat, panels):
        draw_panel(axes, [row for row in rows if panel_of(row["problem"]) == panel], styles)
        axes.set_title(panel_title(panel))
        axes.yaxis.set_major_formatter(FuncFormatter(time_label))
        axes.set_xlabel("keys" if panel[7] else "sequence length N")
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    for line in grid:
        line[0].set_ylabel("time per call")
        for axes in line:
            axes.tick_params(labelleft=True)
    handles = {}
    for axes in grid.flat:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    figure.legend(
        [handles[name] for name in names], names, loc="outside lower center", ncols=min(3, len(names)), frameon=False
    )
    figure.suptitle(f"{'; '.join(machines)}: median of seven batches, bars from the fastest to the slowest", fontsize=9)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="JSON files of tilewise bench")
    parser.add_argument("--output", required=True, help="path without extension; .svg and .png are written")
    arguments = parser.parse_args()
    figure = draw(*load_rows(arguments.files))
    stem = Path(arguments.output)
    stem.parent.mkdir(parents=True, exist_ok=True)
    for extension in ("svg", "png"):
        path = stem.with_name(f"{stem.name}.{extension}")
        metadata = {"Date": None} if extension == "svg" else None
        figure.savefig(path, dpi=160, metadata=metadata)
        print(path)


if __name__ == "__main__":
    main()
