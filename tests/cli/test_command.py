"""Runs the built command: exit codes, messages, results, and that nothing is written when something is wrong.

usage: test_command.py TILEWISE SOURCE_FOLDER    (standard library only)
"""

import json
import math
import os
import resource
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

COMMAND = sys.argv.pop(1)
SOURCE = Path(sys.argv.pop(1))
CODES = {"F64": "d", "F32": "f", "F16": "e", "BOOL": "?", "I32": "i", "I64": "q"}
DESCRS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BOOL": "|b1", "I32": "<i4", "I64": "<i8"}


def count(shape):
    return math.prod(shape)


def pack(dtype, values):
    return struct.pack(f"<{len(values)}{CODES[dtype]}", *values)


def safetensors(tensors):
    """Bytes of a file of {name: (dtype, shape, values)}."""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        raw = pack(dtype, values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def read_safetensors(path):
    raw = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = struct.unpack(f"<{count(entry['shape'])}{CODES[entry['dtype']]}", raw[8 + length + begin : 8 + length + end])
        tensors[name] = (entry["dtype"], entry["shape"], list(values))
    return tensors


def npy(dtype, shape, values):
    sizes = "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
    text = f"{{'descr': '{DESCRS[dtype]}', 'fortran_order': False, 'shape': {sizes}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + pack(dtype, values)


def ramp(shape, seed):
    return [math.sin(seed + 1.7 * i) for i in range(count(shape))]


def attention(q, k, v, causal=False):
    """Plain attention of one head of lists of rows."""
    out = []
    for i, query in enumerate(q):
        keys = range(min(i + 1, len(k)) if causal else len(k))
        scores = [sum(a * b for a, b in zip(query, k[j])) / math.sqrt(len(query)) for j in keys]
        weights = [math.exp(s - max(scores)) for s in scores]
        out.append([sum(w * v[j][d] for w, j in zip(weights, keys)) / sum(weights) for d in range(len(v[0]))])
    return out


def rows(values, width):
    return [values[i : i + width] for i in range(0, len(values), width)]


class Command(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="tilewise_command_")
        self.folder = Path(self.temporary.name)
        self.addCleanup(self.temporary.cleanup)
        shape = [1, 2, 5, 4]
        self.tensors = {name: ("F32", shape, ramp(shape, i)) for i, name in enumerate("qkv")}
        self.input = self.put("in.safetensors", safetensors(self.tensors))
        self.output = str(self.folder / "out.safetensors")

    def put(self, name, data):
        (self.folder / name).write_bytes(data)
        return str(self.folder / name)

    def run_command(self, *arguments, **options):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TILEWISE_")}
        environment.update(options.pop("environment", {}))
        return subprocess.run(
            [COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120, env=environment, **options
        )

    def succeeds(self, *arguments, **options):
        result = self.run_command(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        return result.stdout

    def fails(self, code, words, *arguments, **options):
        """Exit code, message, and: no file in the folder appeared, disappeared or changed."""
        before = {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        result = self.run_command(*arguments, **options)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stderr}")
        self.assertTrue(result.stderr.startswith("tilewise: "), result.stderr)
        self.assertIn(words, result.stderr)
        after = {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        self.assertEqual(before, after)

    def assert_close(self, actual, expected, tolerance=1e-6):
        self.assertEqual(len(actual), len(expected))
        for a, b in zip(actual, expected):
            self.assertLess(abs(a - b), tolerance)


class Run(Command):
    def expected(self, causal):
        heads = [rows(self.tensors[name][2], 4) for name in "qkv"]
        out = []
        for head in range(2):
            out += attention(*[tensor[5 * head : 5 * head + 5] for tensor in heads], causal)
        return [x for row in out for x in row]

    def test_safetensors(self):
        for causal in (False, True):
            text = self.succeeds("run", "--input", self.input, "--output", self.output, *["--causal"] * causal)
            self.assertIn("kernel", text)
            result = read_safetensors(self.output)
            self.assertEqual(set(result), {"o", "lse"})
            self.assertEqual(result["o"][:2], ("F32", [1, 2, 5, 4]))
            self.assertEqual(result["lse"][:2], ("F32", [1, 2, 5]))
            self.assert_close(result["o"][2], self.expected(causal))

    def test_output_may_be_the_input(self):
        self.succeeds("run", "--input", self.input, "--output", self.input)
        self.assert_close(read_safetensors(self.input)["o"][2], self.expected(False))

    def test_npy(self):
        flags = []
        for name in "qkv":
            flags += ["--" + name, self.put(name + ".npy", npy(*self.tensors[name]))]
        o, lse = self.folder / "o.npy", self.folder / "lse.npy"
        self.succeeds("run", *flags, "--o", o, "--lse", lse, "--causal")
        data = o.read_bytes()
        self.assertIn(b"'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 5, 4), }", data)
        self.assert_close(struct.unpack("<40f", data[-160:]), self.expected(True))
        self.assertIn(b"'shape': (1, 2, 5), }", lse.read_bytes())
        lengths = self.put("lengths.npy", npy("I32", [1], [2]))
        self.succeeds("run", *flags, "--o", o, "--kv-lengths", lengths)
        heads = [rows(self.tensors[name][2], 4) for name in "qkv"]
        first = attention(heads[0][:5], heads[1][:2], heads[2][:2])
        self.assert_close(struct.unpack("<40f", o.read_bytes()[-160:])[:20], [x for row in first for x in row])

    def test_prefix_and_compare(self):
        tensors = {"layer1." + name: value for name, value in self.tensors.items()}
        tensors["layer1.want"] = ("F32", [1, 2, 5, 4], self.expected(False))
        tensors["layer1.typo"] = tensors["other.q"] = ("I32", [1], [0])
        path = self.put("layers.safetensors", safetensors(tensors))
        flags = ["run", "--input", path, "--prefix", "layer1."]
        text = self.succeeds(*flags, "--compare", "want", "--tolerance", "1e-5", "--output", self.output)
        self.assertIn("difference", text)
        self.assertIn("'typo'", text)
        self.assertNotIn("other", text)
        self.succeeds(*flags, "--compare", "want")
        self.fails(1, "further from the expected", *flags, "--compare", "q", "--tolerance", "1e-5", "--output", self.output)
        self.fails(1, "no tensor 'layer1.none'", *flags, "--compare", "none")
        self.fails(1, "shape [1] differs", *flags, "--compare", "typo")
        self.fails(1, "no tensor 'layer2.q'", "run", "--input", path, "--prefix", "layer2.", "--output", self.output)

    def test_real_inputs(self):
        files = sorted((SOURCE / "examples/data").glob("*.safetensors"))
        self.assertTrue(files)
        for path in files:
            self.succeeds("run", "--input", path, "--compare", "expected_o", "--tolerance", "1e-5")

    def test_forced_kernel_and_dropout(self):
        text = self.succeeds("run", "--input", self.input, "--output", self.output, "--kernel", "cpu.scalar",
                             "--dropout", "0.5", "--seed", "18446744073709551615", "--offset", "7")
        self.assertIn("cpu.scalar.forward", text)
        self.succeeds("run", "--input", self.input, "--output", self.output, "--dropout", "1", "--seed", "1")
        self.assertEqual(set(read_safetensors(self.output)["o"][2]), {0.0})

    def test_usage_errors(self):
        run = ["run", "--input", self.input, "--output", self.output]
        cases = [
            ("subcommand", []), ("", ["walk"]), ("", ["run", "--fast"]), ("no input", ["run"]),
            ("no output", ["run", "--input", self.input]),
            ("--scale: nan is not finite", run + ["--scale", "nan"]), ("is not finite", run + ["--scale", "-inf"]),
            ("not a number", run + ["--scale", "1x"]), ("not a number", run + ["--scale", ""]),
            ("above 0", run + ["--softcap", "0"]), ("above 0", run + ["--softcap", "nan"]),
            ("--causal means --right 0", run + ["--causal", "--right", "3"]),
            ("give one of them", run + ["--left", "3", "--align", "top_left", "--delta", "1"]),
            ("top_left or bottom_right", run + ["--causal", "--align", "middle"]),
            ("whole number", run + ["--left", "1.5"]), ("whole number", run + ["--left", "0x10"]),
            ("whole number", run + ["--right", "9223372036854775808"]), ("whole number", run + ["--threads", "0"]),
            ("needs --seed", run + ["--dropout", "0.5"]), ("[0, 1]", run + ["--dropout", "1.5", "--seed", "1"]),
            ("[0, 1]", run + ["--dropout", "nan", "--seed", "1"]), ("--seed", run + ["--dropout", "0.5", "--seed", "-1"]),
            ("18446744073709551615", run + ["--dropout", "0.5", "--seed", "18446744073709551616"]),
            ("whole number", run + ["--dropout", "0", "--seed", "1", "--offset", "4294967296"]),
            ("belong to --dropout", run + ["--seed", "1"]), ("belongs to --compare", run + ["--tolerance", "1"]),
            ("no kernel is named 'cpu.nothing'", run + ["--kernel", "cpu.nothing"]),
            ("cpu, cuda or metal", run + ["--device", "tpu"]), ("--o and --lse belong", run + ["--o", "x.npy"]),
            ("both name inputs", run + ["--q", "q.npy"]), ("--prefix belongs", ["run", "--prefix", "a", "--output", "b"]),
            ("--k F is missing", ["run", "--q", self.put("q.npy", npy(*self.tensors["q"])), "--o", "o.npy"]),
            ("same file", ["run", "--q", "q", "--k", "k", "--v", "v", "--o", "x", "--lse", "./x"]),
            ("not a shape", ["explain", "--q-shape", "1,2,3", "--kv-shape", "1,1,1,1"]),
            ("not a shape", ["explain", "--q-shape", "1,2,3,-4", "--kv-shape", "1,1,1,1"]),
            ("not a shape", ["explain", "--q-shape", "1,2,3,4,5", "--kv-shape", "1,1,1,1"]),
            ("64 bits", ["explain", "--q-shape", "4294967296,4294967296,1,1", "--kv-shape", "1,1,1,1"]),
            ("no problem", ["explain"]), ("no grid is named", ["bench", "--grid", "none"]),
            ("expected float64", ["bench", "--grid", "founding", "--dtype", "int8"]), ("", ["bench"]),
            ("no kernel is named", ["check", "--kernel", "x"]), ("no case is of family", ["check", "--family", "none", "--quick"]),
        ]
        for words, arguments in cases:
            with self.subTest(arguments=arguments):
                self.fails(2, words, *arguments)

    def test_a_band_needs_its_corner(self):
        tensors = dict(self.tensors, k=("F32", [1, 2, 3, 4], ramp([24], 1)), v=("F32", [1, 2, 3, 4], ramp([24], 2)))
        path = self.put("uneven.safetensors", safetensors(tensors))
        run = ["run", "--input", path, "--output", self.output]
        self.fails(2, "--align bottom_right", *run, "--causal")
        self.succeeds(*run)
        for corner in ("--align=top_left", "--align=bottom_right", "--delta=-1"):
            self.succeeds(*run, "--causal", corner)
        self.succeeds(*run, "--left", "-1", "--align", "top_left")

    def test_data_errors(self):
        def changed(**tensors):
            return safetensors({**self.tensors, **tensors})

        shape = [1, 2, 5, 4]
        good = safetensors(self.tensors)
        cases = [
            ("holds no tensor 'q'", safetensors({"k": self.tensors["k"], "v": self.tensors["v"]})),
            ("q: shape [2, 5, 4] has rank 3; expected 4", changed(q=("F32", [2, 5, 4], ramp(shape, 0)))),
            ("q: dtype int32; expected", changed(q=("I32", shape, [1] * 40))),
            ("k", changed(k=("F64", shape, ramp(shape, 1)))),
            ("k", changed(k=("F32", [1, 2, 5, 3], ramp([30], 1)))),
            ("heads", changed(k=("F32", [1, 3, 5, 4], ramp([60], 1)), v=("F32", [1, 3, 5, 4], ramp([60], 1)))),
            ("mask", changed(mask=("F32", [5, 5], [1] * 25))),
            ("mask", changed(mask=("BOOL", [5, 6], [True] * 30))),
            ("bias", changed(bias=("F64", [5, 5], [1] * 25))),
            ("sinks", changed(sinks=("F32", [3], [1] * 3))),
            ("kv_lengths", changed(kv_lengths=("I32", [1], [6]))),
            ("kv_lengths", changed(kv_lengths=("I64", [1], [-1]))),
            ("q_lengths", changed(q_lengths=("F32", [1], [1]))),
            ("cu_q", changed(cu_q=("I32", [3], [0, 4, 3]), cu_k=("I32", [3], [0, 2, 5]))),
            ("cu_k", changed(cu_q=("I32", [3], [0, 2, 5]), cu_k=("I32", [3], [0, 2, 6]))),
            ("block_table", changed(block_table=("I32", [1, 1], [1]), kv_lengths=("I32", [1], [5]))),
            ("promises a header", good[:100]),
            ("bytes of data", good[:-1]),
            ("too few", b""),
            ("not a safetensors file", b"\x00" * 64),
            ("promises a header", struct.pack("<Q", 100_000_000) + b"{}"),
            ("expected at most 16777216", struct.pack("<Q", 100_000_000) + b"{" + b" " * 99_999_999),
            ("more elements than 64 bits", self.header_only({"q": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 0]}})),
        ]
        for words, data in cases:
            with self.subTest(words=words):
                path = self.put("bad.safetensors", data)
                self.fails(1, words, "run", "--input", path, "--output", self.output)
                self.put("out.safetensors", b"kept")
                self.fails(1, words, "run", "--input", path, "--output", self.output)
                os.remove(self.output)

    @staticmethod
    def header_only(header):
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text

    def test_a_tiny_file_cannot_ask_for_a_huge_result(self):
        header = {
            "q": {"dtype": "F32", "shape": [1, 1, 2**40, 0], "data_offsets": [0, 0]},
            "k": {"dtype": "F32", "shape": [1, 1, 0, 0], "data_offsets": [0, 0]},
            "v": {"dtype": "F32", "shape": [1, 1, 0, 2**20], "data_offsets": [0, 0]},
        }
        path = self.put("huge.safetensors", self.header_only(header))
        self.fails(1, "more than this machine's memory", "run", "--input", path, "--output", self.output)
        header["v"]["shape"] = [1, 1, 0, 2**40]
        path = self.put("huge.safetensors", self.header_only(header))
        self.fails(1, "more than this machine's memory", "run", "--input", path, "--output", self.output)

    def test_zero_size_problems(self):
        empty = {name: ("F32", [0, 2, 3, 4], []) for name in "qkv"}
        self.succeeds("run", "--input", self.put("e.safetensors", safetensors(empty)), "--output", self.output)
        self.assertEqual(read_safetensors(self.output)["o"], ("F32", [0, 2, 3, 4], []))
        no_keys = dict(self.tensors, k=("F32", [1, 2, 0, 4], []), v=("F32", [1, 2, 0, 4], []))
        self.succeeds("run", "--input", self.put("e.safetensors", safetensors(no_keys)), "--output", self.output)
        self.assertEqual(set(read_safetensors(self.output)["lse"][2]), {-math.inf})

    def test_files_that_are_none(self):
        os.mkfifo(self.folder / "pipe")
        run = ["run", "--output", self.output, "--input"]
        self.fails(1, "cannot be opened: No such file", *run, self.folder / "missing")
        for path in (self.folder, self.folder / "pipe", "/dev/zero"):
            self.fails(1, "is not a regular file", *run, path)
        run = ["run", "--input", self.input, "--output"]
        for path in (self.folder, self.folder / "pipe", "/dev/null"):
            self.fails(1, "is not a regular file", *run, path)
        self.fails(1, "cannot be written", *run, self.folder / "missing" / "out")
        npy_flags = ["--q", "/dev/zero", "--k", "/dev/zero", "--v", "/dev/zero", "--o", self.folder / "o.npy"]
        self.fails(1, "/dev/zero: is not a regular file", "run", *npy_flags)

    def test_a_full_disk_leaves_nothing(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

        self.fails(1, "cannot be written", "run", "--input", self.input, "--output", self.output, preexec_fn=limit)
        self.put("out.safetensors", b"kept")
        self.fails(1, "cannot be written", "run", "--input", self.input, "--output", self.output, preexec_fn=limit)

    def test_what_is_not_built_says_so(self):
        run = ["run", "--input", self.input, "--output", self.output]
        self.fails(1, "backward pass is not built yet", *run, "--backward")
        self.fails(1, "backward pass is not built yet", "bench", "--grid", "backward")
        self.fails(1, "--device cuda", *run, "--device", "cuda")
        self.fails(1, "ladder", *run, "--kernel", "ladder.blockwise")

    def test_a_closed_or_full_standard_output_is_an_error(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "w") as full:
            result = subprocess.run([COMMAND, "info"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(result.returncode, 1)
        self.assertIn("standard output", result.stderr)


class Others(Command):
    def test_help(self):
        text = self.succeeds("--help")
        for name in ("run", "explain", "info", "check", "bench"):
            self.assertIn(name, text)
            self.assertIn("Examples:", self.succeeds(name, "--help"))
        self.assertRegex(self.succeeds("--version"), r"^tilewise \d+\.\d+\.\d+\n$")

    def test_info(self):
        self.assertIn("cpu.scalar.forward", self.succeeds("info"))
        data = json.loads(self.succeeds("info", "--json"))
        self.assertGreaterEqual(data["threads"], 1)
        scalar = next(kernel for kernel in data["kernels"] if kernel["name"] == "cpu.scalar.forward")
        self.assertEqual(scalar["refused"], [])
        self.assertEqual(set(scalar["dtypes"]), {"float64", "float32", "float16", "bfloat16"})
        blockwise = next(kernel for kernel in data["kernels"] if kernel["name"] == "ladder.blockwise")
        self.assertIn("causal", blockwise["options"])
        self.assertIn("gqa", [refused["what"] for refused in blockwise["refused"]])

    def test_explain(self):
        shapes = ["explain", "--q-shape", "1,4,256,32", "--kv-shape", "1,2,256,32", "--dv", "16", "--causal"]
        text = self.succeeds(*shapes, "--kernel", "cpu.scalar")
        self.assertIn("cpu.scalar.forward", text)
        data = json.loads(self.succeeds(*shapes, "--json"))
        self.assertEqual(data["flops"], 2 * (32 + 16) * 4 * (256 * 257 // 2))
        self.assertEqual(data["bytes"], 4 * (6 * 256 * 48 + 4 * 256))
        self.assertLess(data["tiles_visited"], data["tiles_total"])
        self.assertTrue(all(set(entry) == {"kernel", "reason"} for entry in data["refused"]))
        none = json.loads(self.succeeds(*shapes, "--json", "--kernel", "ladder.blockwise"))
        self.assertIsNone(none["chosen"])
        from_file = json.loads(self.succeeds("explain", "--input", self.input, "--json"))
        self.assertEqual(from_file["flops"], 2 * 8 * 2 * 25)
        self.fails(2, "not both", "explain", "--input", self.input, "--q-shape", "1,1,1,1")
        self.fails(2, "--align", "explain", "--q-shape", "1,1,4,8", "--kv-shape", "1,1,5,8", "--causal")
        self.fails(1, "k", "explain", "--q-shape", "1,1,4,8", "--kv-shape", "1,1,4,7")

    def test_check(self):
        path = self.folder / "check.json"
        result = self.run_command("check", "--quick", "--kernel", "cpu.scalar", "--family", "band", "--json", path)
        self.assertEqual(result.stderr, "")
        data = json.loads(path.read_text())
        last = result.stdout.rstrip("\n").split("\n")[-1]
        self.assertEqual(last, f"{data['passed']} passed, {data['failed']} failed, {data['skipped']} skipped")
        self.assertEqual(result.returncode, 1 if data["failed"] else 0)
        self.assertEqual(len(data["results"]), data["passed"] + data["failed"] + data["skipped"])
        self.assertEqual({entry["kernel"] for entry in data["results"]}, {"cpu.scalar.forward"})

    def test_bench(self):
        grid = {"schema": 1, "name": "tiny", "problems": [
            {"S": 16, "D": 8, "causal": [True, False]},
            {"name": "window", "Hq": 4, "Hkv": 2, "Sq": 4, "Sk": 16, "D": 8, "Dv": 4, "window": 5, "sinks": True}]}
        path = self.put("tiny.json", json.dumps(grid).encode())
        out = self.folder / "bench.json"
        text = self.succeeds("bench", "--grid", path, "--json", out, "--threads", "2")
        self.assertIn("% peak", text)
        data = json.loads(out.read_text())
        self.assertEqual(data["schema"], 1)
        self.assertEqual(set(data["machine"]), {"cpu", "isa", "gpu", "compiler", "version", "date", "peaks"})
        self.assertEqual(set(data["machine"]["peaks"]), {
            "fma_f32_gflops", "fma_f64_gflops", "amx_bf16_gflops", "read_gb_s", "read_gb_s_2_threads"})
        self.assertGreater(data["machine"]["peaks"]["fma_f32_gflops"], 0)
        kernels = {row["kernel"] for row in data["rows"] if row["problem"]["name"] == "causal"}
        self.assertTrue({"cpu.scalar.forward", "ladder.blockwise"} <= kernels, kernels)
        for row in data["rows"]:
            self.assertEqual(set(row), {"problem", "library", "kernel", "device", "threads", "batches", "calls_per_batch",
                                        "median_us", "min_us", "max_us", "gflops", "rel_l2_error"})
            self.assertEqual((row["batches"], row["threads"], row["library"]), (7, 2, "tilewise"))
            self.assertLessEqual(row["min_us"], row["median_us"])
            self.assertLessEqual(row["median_us"], row["max_us"])
            self.assertLess(row["rel_l2_error"], 1e-5)
        window = next(row for row in data["rows"] if row["problem"]["name"] == "window")
        self.assertEqual(window["problem"], {
            "name": "window", "B": 1, "Hq": 4, "Hkv": 2, "Sq": 4, "Sk": 16, "D": 8, "Dv": 4, "dtype": "float32",
            "band": [4, 0], "alignment": "bottom_right", "pass": "forward"})
        flops = 2 * 12 * 4 * 4 * 5
        self.assertAlmostEqual(window["gflops"] * window["median_us"] * 1e3, flops, delta=flops * 1e-6)
        self.fails(1, "is not valid JSON", "bench", "--grid", self.put("bad.json", b"{"))
        self.fails(1, "cannot be written", "bench", "--grid", path, "--json", "/dev/null")

    def test_environment_forces_a_kernel(self):
        data = json.loads(self.succeeds("explain", "--input", self.input, "--json",
                                        environment={"TILEWISE_KERNEL": "cpu.scalar"}))
        self.assertEqual(data["chosen"], "cpu.scalar.forward")


if __name__ == "__main__":
    unittest.main()
