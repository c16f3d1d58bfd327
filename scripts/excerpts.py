#!/usr/bin/env python3
"""Keeps the code in the documentation equal to the sources.

A source marks an excerpt with `// [excerpt: NAME]` and `// [end]`. A page names it in an HTML comment, followed by a
fenced block that this script fills:

    <!-- excerpt: src/reference/online_softmax.h#rescale -->
    ```cpp
    ...
    ```

    scripts/excerpts.py            rewrite the blocks of every page under docs/
    scripts/excerpts.py --check    change nothing; exit 1 and show the difference when a block is out of date
    scripts/excerpts.py PAGE...    the same for these pages only
"""

import argparse
import difflib
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent

BEGIN = re.compile(r"^\s*// \[excerpt: ([a-z0-9_]+)\]\s*$")
END = re.compile(r"^\s*// \[end\]\s*$")
REFERENCE = re.compile(r"^<!-- excerpt: (\S+)#([a-z0-9_]+) -->$")
LOOKS_LIKE_REFERENCE = re.compile(r"^\s*<!--\s*excerpt\b")


class ExcerptError(Exception):
    """A marker or a reference that cannot be understood; the message names the file and line."""


def excerpts_of(path):
    """Returns {name: text} for one source file, each text without its common indentation."""
    found = {}
    name, lines = None, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{path}:{number}"
        begin = BEGIN.match(line)
        if begin:
            if name is not None:
                raise ExcerptError(f"{where}: excerpt '{begin[1]}' begins inside '{name}'")
            if begin[1] in found:
                raise ExcerptError(f"{where}: a second excerpt '{begin[1]}'")
            name, lines = begin[1], []
        elif END.match(line):
            if name is None:
                raise ExcerptError(f"{where}: [end] without a beginning")
            if not any(lines):
                raise ExcerptError(f"{where}: excerpt '{name}' is empty")
            found[name] = textwrap.dedent("\n".join(lines)).strip("\n")
            name = None
        elif name is not None:
            lines.append(line)
    if name is not None:
        raise ExcerptError(f"{path}: excerpt '{name}' has no [end]")
    return found


def refreshed(page, root):
    """Returns (text of the page with current excerpts, number of excerpts)."""
    lines = page.read_text(encoding="utf-8").splitlines()
    result = []
    count = 0
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        result.append(line)
        reference = REFERENCE.match(line)
        if not reference:
            if LOOKS_LIKE_REFERENCE.match(line):
                raise ExcerptError(f"{page}:{at}: expected <!-- excerpt: PATH#NAME -->, got: {line.strip()}")
            continue
        source = root / reference[1]
        if not source.is_file():
            raise ExcerptError(f"{page}:{at}: no file {reference[1]}")
        excerpts = excerpts_of(source)
        if reference[2] not in excerpts:
            raise ExcerptError(f"{page}:{at}: {reference[1]} has no excerpt '{reference[2]}'")
        if at >= len(lines) or not lines[at].startswith("```"):
            raise ExcerptError(f"{page}:{at + 1}: a fenced block must follow the reference")
        fence = lines[at]
        at += 1
        while at < len(lines) and lines[at] != "```":
            at += 1
        if at == len(lines):
            raise ExcerptError(f"{page}: the block after '{line}' is not closed")
        at += 1
        result += [fence, *excerpts[reference[2]].splitlines(), "```"]
        count += 1
    return "\n".join(result) + "\n", count


def main():
    parser = argparse.ArgumentParser(description="Fills the documentation's code blocks from the sources.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a block is out of date")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the repository (default: this script's)")
    parser.add_argument("pages", nargs="*", type=pathlib.Path, help="default: every .md file under docs/")
    arguments = parser.parse_args()

    pages = arguments.pages or sorted((arguments.root / "docs").rglob("*.md"))
    stale = 0
    total = 0
    try:
        for page in pages:
            old = page.read_text(encoding="utf-8")
            new, count = refreshed(page, arguments.root)
            total += count
            if new == old:
                continue
            stale += 1
            if arguments.check:
                sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True),
                                                           str(page), f"{page} (from the sources)"))
            else:
                page.write_text(new, encoding="utf-8")
                print(f"updated {page}")
    except (ExcerptError, OSError) as error:
        print(f"excerpts: {error}", file=sys.stderr)
        return 1
    if arguments.check and stale:
        print(f"excerpts: {stale} page(s) out of date; run scripts/excerpts.py", file=sys.stderr)
        return 1
    print(f"excerpts: {total} in {len(pages)} pages, all current")
    return 0


if __name__ == "__main__":
    sys.exit(main())
