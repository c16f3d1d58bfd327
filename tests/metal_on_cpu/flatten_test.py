#!/usr/bin/env python3
"""Tests of src/metal/flatten.py; ends with the line that scripts/metal_check.sh sums up."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src" / "metal"))
import flatten  # noqa: E402


class Flatten(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, **files):
        for name, text in files.items():
            (self.root / f"{name}.h").write_bytes(text if isinstance(text, bytes) else text.encode())

    def flat(self, name, **options):
        return flatten.flatten(self.root / f"{name}.h", [self.root], **options)

    def preprocessed(self, text):
        """The lines that a compiler would see."""
        done = subprocess.run(["clang++-19", "-E", "-P", "-x", "c++", "-"], input=text, capture_output=True, text=True,
                              check=True)
        return done.stdout.split("\n")

    def test_includes_are_replaced_and_system_headers_stay(self):
        self.write(a='#include <metal_stdlib>\n#include "b.h"\nint a;\n', b="int b;\n")
        text = self.flat("a")
        self.assertIn("#include <metal_stdlib>", text)
        self.assertNotIn('"b.h"', text)
        self.assertLess(text.index("int b;"), text.index("int a;"))

    def test_pragma_once(self):
        self.write(a='#include "b.h"\n#include "c.h"\n', b='#pragma once\n#include "c.h"\nint b;\n',
                   c="#pragma once\nint c;\n")
        lines = self.preprocessed(self.flat("a"))
        self.assertEqual(lines.count("int c;"), 1)
        self.assertEqual(lines.count("int b;"), 1)

    def test_textual_headers_come_every_time(self):
        self.write(a='#include "b.h"\n#include "b.h"\n', b="f();\n")
        self.assertEqual(self.flat("a").count("f();"), 2)

    def test_a_paste_in_a_branch_that_is_off_does_not_hide_the_next(self):
        self.write(a='#ifdef NEVER\n#include "c.h"\n#endif\n#include "c.h"\n', c="#pragma once\nint c;\n")
        self.assertEqual(self.preprocessed(self.flat("a")).count("int c;"), 1)
        self.write(a='#ifndef NEVER\n#include "c.h"\n#endif\n#include "c.h"\n')
        self.assertEqual(self.preprocessed(self.flat("a")).count("int c;"), 1)

    def test_errors_name_the_place(self):
        self.write(a='#include "missing.h"\n', b='#include "b.h"\n', c=b"int a;\n// caf\xc3\xa9\n")
        for name, message in [("a", "missing.h"), ("b", "includes itself"), ("c", "c.h:2")]:
            with self.assertRaisesRegex(flatten.FlattenError, message):
                self.flat(name)

    def test_lines(self):
        self.write(a='#include "b.h"\nint a = __LINE__;\n', b="int b = __LINE__;\n")
        lines = self.preprocessed(self.flat("a", lines=True))
        self.assertIn("int a = 2;", lines)
        self.assertIn("int b = 1;", lines)

    def test_kernels_flatten_to_ascii_without_quoted_includes(self):
        kernels = sorted((ROOT / "src" / "metal" / "kernels").glob("*.metal"))
        self.assertGreaterEqual(len(kernels), 2)
        for kernel in kernels:
            text = flatten.flatten(kernel, [ROOT / "src"])
            text.encode("ascii")
            self.assertNotRegex(text, r'(?m)^\s*#\s*include\s*"')


if __name__ == "__main__":
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=0).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(Flatten))
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed, {len(result.skipped)} skipped")
    sys.exit(1 if bad else 0)
