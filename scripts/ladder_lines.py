#!/usr/bin/env python3
"""Counts the lines of every rung of the ladder and the lines that change from rung to rung.

Changed lines are those that `diff --minimal` marks with < or > (a replaced line counts twice), with indentation
ignored. They are counted twice: over whole files, and over code alone (comments and blank lines removed).

    scripts/ladder_lines.py            print the table
    scripts/ladder_lines.py --write    put the table into docs/reading_order.md
    scripts/ladder_lines.py --check    exit 1 unless that table is current, every rung has fewer than 120 lines, every
                                       step changes at most 60 lines of code, and what a rung leaves wasted (its last
                                       comment) is the first sentence of the next one
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = "docs/reading_order.md"
RUNGS = [
    "src/reference/standard_attention.h",
    "src/reference/online_softmax.h",
    "src/reference/one_query_attention.h",
    "src/reference/blockwise_attention.h",
    "src/reference/split_and_merge.h",
]
LINE_LIMIT = 120  # a rung has fewer
STEP_LIMIT = 60  # a step changes at most this many lines of code
TABLE = re.compile(r"(<!-- ladder_lines -->\n)(.*?)(<!-- end -->)", re.DOTALL)
WASTED = "Still wasted:"


def whole_lines(text):
    return [line.strip() for line in text.splitlines()]


def code_lines(text):
    """Lines without comments, blank lines and indentation. The rungs hold no string with // in it and no /* */."""
    stripped = (line.split("//")[0].strip() for line in text.splitlines())
    return [line for line in stripped if line]


def changed(old, new):
    """Returns (lines only in old, lines only in new) for a longest common subsequence."""
    common = [0] * (len(new) + 1)
    for line in old:
        diagonal = 0
        for column, other in enumerate(new, 1):
            above = common[column]
            common[column] = diagonal + 1 if line == other else max(above, common[column - 1])
            diagonal = above
    return len(old) - common[-1], len(new) - common[-1]


def table_of(root):
    rows = ["| rung | lines | of code | changed code, from the rung before | changed lines, comments included |",
            "|---|---:|---:|---:|---:|"]
    before = None
    for rung in RUNGS:
        text = (root / rung).read_text(encoding="utf-8")
        whole, code = whole_lines(text), code_lines(text)
        steps = ["", ""]
        if before is not None:
            for index, (old, new) in enumerate(((before[1], code), (before[0], whole))):
                gone, come = changed(old, new)
                steps[index] = f"{gone + come} (-{gone} +{come})"
        rows.append(f"| [{rung.split('/')[-1]}](../{rung}) | {len(whole)} | {len(code)} | {steps[0]} | {steps[1]} |")
        before = whole, code
    return "\n".join(rows) + "\n"


def comment_blocks(text):
    """Returns the paragraphs of comment of a file in order, each as one line of prose."""
    blocks = [[]]
    for line in text.splitlines():
        words = line.strip()[2:].strip() if line.strip().startswith("//") else ""
        if words:
            blocks[-1].append(words)
        elif blocks[-1]:
            blocks.append([])
    return [" ".join(block) for block in blocks if block]


def problems(root):
    """Returns what is wrong, in words."""
    found = []
    wasted = None
    code_before = None
    for rung in RUNGS:
        text = (root / rung).read_text(encoding="utf-8")
        lines = len(text.splitlines())
        if lines >= LINE_LIMIT:
            found.append(f"{rung} has {lines} lines; a rung has fewer than {LINE_LIMIT}")
        code = code_lines(text)
        if code_before is not None and sum(changed(code_before, code)) > STEP_LIMIT:
            found.append(f"{rung} changes {sum(changed(code_before, code))} lines of code; at most {STEP_LIMIT}")
        blocks = comment_blocks(text)
        if wasted is not None and blocks[0].lower() != wasted.lower():
            found.append(f"{rung} must begin with what the rung before leaves wasted: {wasted}")
        if blocks[-1].startswith(WASTED):
            wasted = blocks[-1][len(WASTED):].strip()
        else:
            wasted = None
            found.append(f"{rung} must end with a comment '{WASTED} ...'")
        code_before = code
    return found


def main():
    parser = argparse.ArgumentParser(description="Counts lines of the ladder's rungs and of the steps between them.")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--write", action="store_true", help=f"put the table into {PAGE}")
    mode.add_argument("--check", action="store_true", help="exit 1 when the table is stale or a limit is broken")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the repository (default: this script's)")
    arguments = parser.parse_args()

    table = table_of(arguments.root)
    page = arguments.root / PAGE
    if not (arguments.write or arguments.check):
        print(table, end="")
        return 0
    old = page.read_text(encoding="utf-8")
    if not TABLE.search(old):
        print(f"ladder_lines: {PAGE} has no '<!-- ladder_lines -->' ... '<!-- end -->'", file=sys.stderr)
        return 1
    new = TABLE.sub(lambda match: match[1] + table + match[3], old)
    if arguments.write:
        page.write_text(new, encoding="utf-8")
        return 0
    found = problems(arguments.root)
    if new != old:
        found.append(f"the table in {PAGE} is out of date; run scripts/ladder_lines.py --write")
    for problem in found:
        print(f"ladder_lines: {problem}", file=sys.stderr)
    if not found:
        print(table, end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
