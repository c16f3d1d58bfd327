#!/usr/bin/env python3
"""Flattens a .metal file: every `#include "..."` is replaced by the file's text, so that the result can be given as one
ASCII string to a run-time compiler (newLibrary, torch.mps.compile_shader). `#include <...>` stays.

    flatten.py kernels/forward.metal [--include DIR]... [--lines] [-o FILE]

A file with `#pragma once` is pasted once, inside a guard; once more if the first paste stands in a conditional, which
may be off. Other files (the -inl headers) are pasted every time. `--lines` keeps #line directives, so that messages
name the original file and line.
"""
import argparse
import pathlib
import re
import sys

INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')
DIRECTIVE = re.compile(r"\s*#\s*(if|ifdef|ifndef|endif)\b")
PRAGMA_ONCE = re.compile(r"^\s*#\s*pragma\s+once\s*$")


class FlattenError(Exception):
    pass


def find(name, directories):
    for directory in directories:
        path = directory / name
        if path.is_file():
            return path.resolve()
    raise FlattenError(f'cannot find "{name}" in {", ".join(str(d) for d in directories)}')


def flatten(path, include_directories, lines=False):
    """The text of `path` with its quoted includes replaced. Raises FlattenError on a missing file, a cycle, or a
    character outside ASCII."""
    return "\n".join(_paste(pathlib.Path(path).resolve(), include_directories, lines, set(), (), False))


def _paste(path, include_directories, lines, pasted, stack, conditional):
    if path in stack:
        raise FlattenError(f"{path} includes itself")
    data = path.read_bytes()
    for number, line in enumerate(data.split(b"\n"), 1):
        if any(byte > 126 or (byte < 32 and byte != 9) for byte in line):
            raise FlattenError(f"{path}:{number}: a character outside printable ASCII")
    source = data.decode("ascii").split("\n")
    once = any(PRAGMA_ONCE.match(line) for line in source)
    if once:
        if path in pasted:
            return []
        if not conditional:
            pasted.add(path)
    guard = "TW_ONCE_" + re.sub(r"\W", "_", "_".join(path.parts[-2:]))
    out = [f"#ifndef {guard}", f"#define {guard}"] if once else []
    if lines:
        out.append(f'#line 1 "{path}"')
    depth = 0
    for number, line in enumerate(source, 1):
        directive = DIRECTIVE.match(line)
        if directive:
            depth += {"if": 1, "ifdef": 1, "ifndef": 1, "endif": -1}.get(directive.group(1), 0)
        match = INCLUDE.match(line)
        if PRAGMA_ONCE.match(line):
            out.append("")
        elif match:
            target = find(match.group(1), [path.parent, *include_directories])
            out += _paste(target, include_directories, lines, pasted, (*stack, path), conditional or depth > 0)
            if lines:
                out.append(f'#line {number + 1} "{path}"')
        else:
            out.append(line)
    return out + (["#endif"] if once else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("--include", action="append", default=[], type=pathlib.Path)
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("-o", "--output", type=pathlib.Path)
    arguments = parser.parse_args()
    try:
        text = flatten(arguments.source, arguments.include, arguments.lines)
    except (FlattenError, OSError) as error:
        sys.exit(f"flatten.py: {error}")
    if arguments.output:
        arguments.output.write_text(text, encoding="ascii")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
