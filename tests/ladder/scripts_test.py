"""Tests of scripts/excerpts.py and scripts/ladder_lines.py: what is out of date or malformed must be refused."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SOURCE = "before\n  // [excerpt: one]\n  first\n    second\n  // [end]\nafter\n"
PAGE = "Text.\n\n<!-- excerpt: a.h#one -->\n```cpp\nfirst\n  second\n```\n\nMore.\n"


class ScriptTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)

    def run_script(self, name, *arguments):
        return subprocess.run([sys.executable, ROOT / "scripts" / name, "--root", self.root, *arguments],
                              capture_output=True, text=True, check=False)


class Excerpts(ScriptTest):
    def write(self, source, page):
        (self.root / "docs").mkdir(exist_ok=True)
        (self.root / "a.h").write_text(source, encoding="utf-8")
        self.page = self.root / "docs" / "page.md"
        self.page.write_text(page, encoding="utf-8")

    def test_a_current_page_passes(self):
        self.write(SOURCE, PAGE)
        self.assertEqual(self.run_script("excerpts.py", "--check").returncode, 0)

    def test_a_stale_page_fails_and_is_left_alone_by_check(self):
        self.write(SOURCE.replace("second", "changed"), PAGE)
        result = self.run_script("excerpts.py", "--check")
        self.assertEqual(result.returncode, 1)
        self.assertIn("+  changed", result.stdout)
        self.assertEqual(self.page.read_text(encoding="utf-8"), PAGE)

    def test_a_stale_page_is_updated(self):
        self.write(SOURCE, PAGE.replace("first\n  second", "old"))
        self.assertEqual(self.run_script("excerpts.py").returncode, 0)
        self.assertEqual(self.page.read_text(encoding="utf-8"), PAGE)

    def test_what_cannot_be_understood_is_an_error(self):
        for source, page, message in (
                (SOURCE, PAGE.replace("#one", "#two"), "no excerpt 'two'"),
                (SOURCE, PAGE.replace("a.h", "b.h"), "no file b.h"),
                (SOURCE, PAGE.replace("a.h#one", "a.h one"), "expected <!-- excerpt: PATH#NAME -->"),
                (SOURCE, PAGE.replace("```cpp\n", ""), "a fenced block must follow"),
                (SOURCE, PAGE.replace("  second\n```", "  second"), "is not closed"),
                (SOURCE.replace("  // [end]\n", ""), PAGE, "has no [end]"),
                (SOURCE.replace("  first\n", "  // [excerpt: inner]\n"), PAGE, "begins inside 'one'"),
                (SOURCE + SOURCE, PAGE, "a second excerpt 'one'"),
                (SOURCE + "// [end]\n", PAGE, "[end] without a beginning")):
            with self.subTest(message):
                self.write(source, page)
                result = self.run_script("excerpts.py", "--check")
                self.assertEqual(result.returncode, 1)
                self.assertIn(message, result.stderr)


class LadderLines(ScriptTest):
    def setUp(self):
        super().setUp()
        shutil.copytree(ROOT / "src" / "reference", self.root / "src" / "reference")
        (self.root / "docs").mkdir()
        shutil.copy(ROOT / "docs" / "reading_order.md", self.root / "docs")
        self.rung = self.root / "src" / "reference" / "one_query_attention.h"

    def refused(self, message):
        result = self.run_script("ladder_lines.py", "--check")
        self.assertEqual(result.returncode, 1)
        self.assertIn(message, result.stderr)

    def change(self, old, new):
        text = self.rung.read_text(encoding="utf-8")
        self.assertIn(old, text)
        self.rung.write_text(text.replace(old, new, 1), encoding="utf-8")

    def test_a_changed_line_makes_the_table_stale(self):
        self.change("  return o;\n", "  const auto result = o;\n  return result;\n")
        self.refused("out of date")
        self.assertEqual(self.run_script("ladder_lines.py", "--write").returncode, 0)
        self.assertEqual(self.run_script("ladder_lines.py", "--check").returncode, 0)

    def test_a_rung_of_120_lines_is_refused(self):
        lines = len(self.rung.read_text(encoding="utf-8").splitlines())
        self.change("  return o;\n", "  return o;\n" + "//\n" * (120 - lines))
        self.refused("has 120 lines")

    def test_a_step_of_more_than_60_lines_of_code_is_refused(self):
        self.change("  return o;\n", "  return o;\n" + "another();\n" * 40)
        self.refused("lines of code; at most 60")

    def test_what_is_wasted_opens_the_next_rung(self):
        self.change("Still wasted: all", "Still wasted: nearly all")
        self.refused("must begin with what the rung before leaves wasted: nearly all of K and V")
        self.change("// Still wasted:", "// Wasted:")
        self.refused("must end with a comment")

    def test_changed_lines_are_those_of_diff(self):
        table = self.run_script("ladder_lines.py").stdout.splitlines()[2:]
        names = [row.split("](")[0].split("[")[1] for row in table]
        for before, after, row in zip(names, names[1:], table[1:]):
            files = []
            for name in (before, after):
                text = (self.root / "src" / "reference" / name).read_text(encoding="utf-8")
                files.append(self.root / f"{name}.stripped")
                files[-1].write_text("".join(line.strip() + "\n" for line in text.splitlines()), encoding="utf-8")
            diff = subprocess.run(["diff", "--minimal", *files], capture_output=True, text=True, check=False).stdout
            marked = sum(line.startswith(("<", ">")) for line in diff.splitlines())
            self.assertEqual(int(row.split("|")[5].split()[0]), marked)


if __name__ == "__main__":
    unittest.main()
