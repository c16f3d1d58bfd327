#!/usr/bin/env python3
"""Draws the figures of docs/ladder/ as SVG, with the standard library alone.

    docs/ladder/figures/make_figures.py            write them beside this script
    docs/ladder/figures/make_figures.py --check    write nothing; exit 1 when a figure is missing or out of date
"""

import argparse
import math
import pathlib
import sys
from html import escape

FOLDER = pathlib.Path(__file__).resolve().parent

INK = "#222222"
QUIET = "#777777"
LINE = "#999999"
PAPER = "#ffffff"
WHOLE = "#4477aa"  # computed, every element visible
CUT = "#88bbdd"  # computed, visible elements of a tile that the diagonal cuts
MASKED = "#e8e8e8"  # inside a visited tile, masked
ACCENT = "#cc5522"


class Drawing:
    """Collects SVG elements; lengths are in pixels, y grows downwards."""

    def __init__(self, title, width, height):
        self.title, self.width, self.height = title, width, height
        self.elements = []

    def rectangle(self, x, y, width, height, fill="none", stroke="none", stroke_width=1.0, dash=""):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.elements.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" '
                             f'stroke="{stroke}" stroke-width="{stroke_width}"{dashed}/>')

    def line(self, x1, y1, x2, y2, stroke=LINE, width=1.0, arrow=False):
        head = ' marker-end="url(#arrow)"' if arrow else ""
        self.elements.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" '
                             f'stroke-width="{width}"{head}/>')

    def text(self, x, y, words, size=13, anchor="start", fill=INK, weight="normal"):
        self.elements.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}" '
                             f'font-weight="{weight}">{escape(words)}</text>')

    def svg(self):
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" font-family="Helvetica, Arial, sans-serif" role="img">',
            f"<title>{escape(self.title)}</title>",
            f'<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{INK}"/></marker></defs>',
            f'<rect width="{self.width}" height="{self.height}" fill="{PAPER}"/>',
            *self.elements,
            "</svg>",
            "",
        ])


def state_kept():
    """What each rung stores beside Q, K, V and O, in proportion: N = 12, D = 6, blocks of 4."""
    length, dimension, block, unit = 12, 6, 4, 10.0
    fills = {"S": WHOLE, "P": WHOLE, "x": WHOLE, "m, l": ACCENT, "u": CUT}
    rungs = [  # name, what it keeps, [(label, rows, columns)]
        ("standard attention", "2 N x N", [("S", length, length), ("P", length, length)]),
        ("online softmax", "N + 2", [("x", 1, length), ("m, l", 1, 2)]),
        ("one-query attention", "block + 2 + D", [("S", 1, block), ("m, l", 1, 2), ("u", 1, dimension)]),
        ("blockwise attention", "rows (block + 2 + D)",
         [("S", block, block), ("m, l", block, 2), ("u", block, dimension)]),
        ("split and merge", "rows (2 + D) a part",
         [("m, l", block, 2), ("u", block, dimension), ("m, l", block, 2), ("u", block, dimension)]),
    ]
    drawing = Drawing("What each rung keeps beside its inputs and outputs", 800, 320)
    for column, (name, size, boxes) in enumerate(rungs):
        left, top = 16.0 + 157 * column, 58.0
        drawing.text(left, 24, name, 13, weight="bold")
        drawing.text(left, 42, size, 12, fill=QUIET)
        for label, rows, columns in boxes:
            drawing.rectangle(left, top, columns * unit, rows * unit, fills[label])
            for row in range(1, rows):
                drawing.line(left, top + row * unit, left + columns * unit, top + row * unit, PAPER, 0.8)
            for n in range(1, columns):
                drawing.line(left + n * unit, top, left + n * unit, top + rows * unit, PAPER, 0.8)
            drawing.text(left + columns * unit + 5, top + rows * unit / 2 + 4, label, 12)
            top += rows * unit + 9
    return drawing.svg()


def running_state():
    """Scores of one row in blocks, the running maximum over them, and m, alpha, l after each block."""
    scores = [0.4, 1.1, -0.6, 1.9, 0.2, 1.3, 1.0, -0.2, 1.6, 2.8, 2.1, 0.7]
    block = 3
    low, high = -1.0, 3.2
    left, top, step, plot_height = 190.0, 30.0, 44.0, 190.0

    def y_of(value):
        return top + plot_height * (high - value) / (high - low)

    drawing = Drawing("The running maximum m and sum l over a row of scores in blocks of 3", 740, 370)
    right = left + step * len(scores)
    drawing.line(left, y_of(0), right, y_of(0))
    drawing.text(left - 12, y_of(0) + 4, "0", 12, "end", QUIET)
    drawing.text(left - 12, top + 14, "score", 12, "end", WHOLE)
    drawing.text(left - 12, top + 32, "running maximum m", 12, "end", ACCENT)
    table_top = top + plot_height + 34
    for row, label in enumerate(("m", "alpha = exp(m_old - m)", "l = alpha l + sum")):
        drawing.text(left - 12, table_top + 26 * row, label, 13, "end", INK)

    m, l = -math.inf, 0.0
    for start in range(0, len(scores), block):
        x = left + step * start
        width = step * block
        if start:
            drawing.line(x, top, x, table_top + 66, QUIET, 0.8)
        tile = scores[start:start + block]
        m_new = max(m, *tile)
        alpha = math.exp(m - m_new)
        if start and m_new > m:
            drawing.line(x, y_of(m), x, y_of(m_new), ACCENT, 2.5)
        m = m_new
        l = alpha * l + sum(math.exp(score - m) for score in tile)
        drawing.line(x, y_of(m), x + width, y_of(m), ACCENT, 2.5)
        for j, score in enumerate(tile):
            y, zero = y_of(score), y_of(0)
            drawing.rectangle(x + step * j + 8, min(y, zero), step - 16, abs(zero - y), WHOLE)
        for row, words in enumerate((f"{m:.1f}", f"{alpha:.3f}", f"{l:.3f}")):
            emphasis = ACCENT if row == 1 and 0 < alpha < 1 else INK
            drawing.text(x + width / 2, table_top + 26 * row, words, 13, "middle", emphasis)
    whole = sum(math.exp(score - max(scores)) for score in scores)
    drawing.text(left, table_top + 94, f"All 12 scores at once: m = {max(scores):.1f}, l = {whole:.3f}.", 13)
    return drawing.svg()


def causal_tiles():
    """The causal score matrix in tiles: whole, cut and skipped."""
    length, query_block, key_block, cell = 14, 4, 3, 24.0
    left, top = 130.0, 56.0
    drawing = Drawing("Tiles of the causal score matrix: computed whole, cut by the diagonal, skipped", 700, 470)
    drawing.text(left + cell * length / 2, 20, f"key position j, in blocks of {key_block}", 13, "middle")
    drawing.text(16, top + cell * length / 2 - 8, "query", 13)
    drawing.text(16, top + cell * length / 2 + 8, "position i,", 13)
    drawing.text(16, top + cell * length / 2 + 24, f"blocks of {query_block}", 13)
    for n in range(length):
        drawing.text(left + cell * (n + 0.5), top - 8, str(n), 11, "middle", QUIET)
        drawing.text(left - 8, top + cell * (n + 0.5) + 4, str(n), 11, "end", QUIET)
    counts = {"whole": 0, "cut": 0, "skipped": 0}
    for query_start in range(0, length, query_block):
        queries = range(query_start, min(query_start + query_block, length))
        for key_start in range(0, length, key_block):
            keys = range(key_start, min(key_start + key_block, length))
            visible = sum(j <= i for i in queries for j in keys)
            kind = "skipped" if key_start >= queries.stop else "whole" if visible == len(queries) * len(keys) else "cut"
            counts[kind] += 1
            for i in queries:
                for j in keys:
                    fill = PAPER if kind == "skipped" else WHOLE if kind == "whole" else CUT if j <= i else MASKED
                    drawing.rectangle(left + cell * j, top + cell * i, cell, cell, fill, PAPER, 1.0)
            stroke, dash = (LINE, "3 3") if kind == "skipped" else (INK, "")
            drawing.rectangle(left + cell * key_start, top + cell * query_start, cell * len(keys), cell * len(queries),
                              "none", stroke, 1.2, dash)
    side = left + cell * length + 24
    for row, (fill, words) in enumerate(((WHOLE, f"whole: {counts['whole']} tiles"),
                                         (CUT, f"cut: {counts['cut']} tiles, visible part"),
                                         (MASKED, "cut tiles, masked part"),
                                         (PAPER, f"skipped: {counts['skipped']} tiles"))):
        drawing.rectangle(side, top + 26 * row, 16, 16, fill, LINE, 1.0, "3 3" if fill == PAPER else "")
        drawing.text(side + 24, top + 26 * row + 13, words)
    drawing.text(left, top + cell * length + 28,
                 "A key loop ends at the first tile with key_start >= query_start + rows.", 13)
    drawing.text(left, top + cell * length + 48,
                 f"N = {length} is no multiple of either block: the last tiles are smaller.", 13)
    return drawing.svg()


def positions():
    """One cut tile with both numberings: positions in the tile and in the sequence."""
    query_start, key_start, rows, keys, cell = 4, 6, 4, 3, 44.0
    drawing = Drawing("Position in the tile and position in the sequence", 700, 290)
    for left, title, visible in (
            (110.0, "right: key_start + j <= query_start + i", lambda i, j: key_start + j <= query_start + i),
            (460.0, "wrong: j <= i", lambda i, j: j <= i)):
        top = 90.0
        drawing.text(left - 66, 24, title, 14, weight="bold")
        drawing.text(left - 20, top - 26, "key", 12, "end", QUIET)
        drawing.text(left - 20, top - 8, "j", 12, "end", QUIET)
        for j in range(keys):
            drawing.text(left + cell * (j + 0.5), top - 26, str(key_start + j), 13, "middle", weight="bold")
            drawing.text(left + cell * (j + 0.5), top - 8, str(j), 12, "middle", QUIET)
        for i in range(rows):
            drawing.text(left - 40, top + cell * (i + 0.5) + 5, f"query {query_start + i}", 13, "end", weight="bold")
            drawing.text(left - 10, top + cell * (i + 0.5) + 5, f"i={i}", 12, "end", QUIET)
            for j in range(keys):
                truth = key_start + j <= query_start + i
                shown = visible(i, j)
                drawing.rectangle(left + cell * j, top + cell * i, cell, cell, CUT if shown else MASKED, PAPER, 1.5)
                if shown != truth:
                    drawing.text(left + cell * (j + 0.5), top + cell * (i + 0.5) + 6, "future" if shown else "lost",
                                 11, "middle", ACCENT)
        drawing.rectangle(left, top, cell * keys, cell * rows, "none", INK, 1.2)
    return drawing.svg()


def split_timeline():
    """One query over 8 blocks of keys: one core after the other against four cores and two rounds of merges."""
    drawing = Drawing("Blocks of keys in a chain on one core, and split over four cores", 700, 300)
    left, width, height = 110.0, 56.0, 26.0
    drawing.text(16, 24, "One chain: each block waits for the (m, l, u) of the block before", 14, weight="bold")
    for core in range(4):
        y = 40 + 32.0 * core
        drawing.text(left - 12, y + 18, f"core {core}", 13, "end")
        for block in range(8):
            busy = core == 0
            drawing.rectangle(left + width * block, y, width - 3, height, WHOLE if busy else PAPER, LINE, 0.8,
                              "" if busy else "3 3")
            if busy:
                drawing.text(left + width * (block + 0.5) - 1, y + 18, f"keys {block}", 11, "middle", PAPER)
    drawing.text(16, 190, "Split: four chains of two blocks, then merges in a fixed order", 14, weight="bold")
    y = 204.0
    small = 20.0
    for core in range(4):
        drawing.text(left - 12, y + 22 * core + 15, f"core {core}", 13, "end")
        for block in range(2):
            drawing.rectangle(left + width * block, y + 22 * core, width - 3, small, WHOLE)
            drawing.text(left + width * (block + 0.5) - 1, y + 22 * core + 14, f"keys {2 * core + block}", 11, "middle",
                         PAPER)
    merge_x = left + 2 * width + 34
    for core in range(4):
        pair_y = y + 44 * (core // 2) + 22
        drawing.line(left + 2 * width, y + 22 * core + 10, merge_x - 4, pair_y - 1, INK, 1, True)
    for pair in range(2):
        drawing.rectangle(merge_x, y + 44 * pair + 11, 54, small, ACCENT)
        drawing.text(merge_x + 27, y + 44 * pair + 25, "merge", 11, "middle", PAPER)
        drawing.line(merge_x + 54, y + 44 * pair + 21, merge_x + 96, y + 43, INK, 1, True)
    drawing.rectangle(merge_x + 100, y + 33, 54, small, ACCENT)
    drawing.text(merge_x + 127, y + 47, "merge", 11, "middle", PAPER)
    drawing.line(merge_x + 154, y + 43, merge_x + 186, y + 43, INK, 1, True)
    drawing.text(merge_x + 192, y + 47, "u / l", 13)
    return drawing.svg()


FIGURES = {
    "state_kept.svg": state_kept,
    "running_state.svg": running_state,
    "causal_tiles.svg": causal_tiles,
    "positions.svg": positions,
    "split_timeline.svg": split_timeline,
}


def main():
    parser = argparse.ArgumentParser(description="Draws the figures of docs/ladder/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a figure is out of date")
    arguments = parser.parse_args()
    stale = []
    for name, draw in FIGURES.items():
        path = FOLDER / name
        text = draw()
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        if arguments.check:
            stale.append(name)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")
    strays = sorted(path.name for path in FOLDER.glob("*.svg") if path.name not in FIGURES)
    for name in stale:
        print(f"make_figures: {name} is out of date; run docs/ladder/figures/make_figures.py", file=sys.stderr)
    for name in strays:
        print(f"make_figures: nothing draws {name}", file=sys.stderr)
    return 1 if stale or strays else 0


if __name__ == "__main__":
    sys.exit(main())
