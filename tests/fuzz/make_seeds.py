#!/usr/bin/env python3
"""Writes the seed corpora of the fuzz targets: make_seeds.py FOLDER. The same bytes every time."""

import json
import pathlib
import random
import struct
import sys

NPY_CODES = {"<f8": 8, "<f4": 4, "<f2": 2, "<i8": 8, "<i4": 4, "|b1": 1}
SAFETENSORS_CODES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "BOOL": 1, "I32": 4, "I64": 8, "U8": 1, "F8_E4M3": 1}


def product(shape):
    result = 1
    for size in shape:
        result *= size
    return result


def npy(descr, shape, version=1, order=False, data=None):
    sizes = "(" + "".join(f"{size}, " for size in shape).rstrip(" ") + ")" if len(shape) < 2 else str(tuple(shape))
    text = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {sizes}, }}".encode()
    prefix = 10 if version == 1 else 12
    text += b" " * (-(prefix + len(text) + 1) % 64) + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    if data is None:
        data = bytes(n % 251 for n in range(product(shape) * NPY_CODES.get(descr, 1)))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def npy_seeds():
    for descr in NPY_CODES:
        for shape in ((), (3,), (2, 3), (1, 2, 0, 4), (1, 2, 3, 2)):
            yield npy(descr, shape)
    yield npy("<f4", (2, 2), version=2)
    yield npy("<f4", (2, 2), version=3)
    yield npy("<f4", (1, 1, 1, 1, 2))
    yield npy("<f4", (2, 2), order=True)
    yield npy(">f4", (2,))
    yield npy("<c8", (1,), data=bytes(8))
    yield npy("<f4", (2, 2), data=bytes(15))
    yield npy("<f4", (2, 2), data=bytes(17))
    yield npy("<f4", (2**62, 4), data=b"")
    yield npy("<f4", (0, 2**62, 2), data=b"")


def safetensors(tensors, metadata=None, padding=0):
    header, at = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape in tensors:
        end = at + product(shape) * SAFETENSORS_CODES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode() + b" " * padding
    return struct.pack("<Q", len(text)) + text + bytes(n % 251 for n in range(at))


def safetensors_seeds():
    for dtype in SAFETENSORS_CODES:
        yield safetensors([("q", dtype, (1, 2, 3, 2))])
    yield safetensors([])
    yield safetensors([], metadata={"format": "pt", "\u00e9": "\u0000"})
    yield safetensors([("q", "F32", (1, 1, 2, 2)), ("k", "F32", (1, 1, 3, 2)), ("mask", "BOOL", (2, 3))], {}, padding=5)
    yield safetensors([("", "F64", ()), ("empty", "F16", (3, 0)), ("cu_q", "I64", (2,)), ("\u00e9\u0000", "I32", (1,))])
    yield safetensors([("five", "F32", (1, 1, 1, 1, 2))])
    whole = safetensors([("a", "F32", (2,)), ("b", "F32", (2,))])
    yield whole[:-1]
    yield whole + b"\0"
    yield whole.replace(b"[8, 16]", b"[4, 12]")
    yield whole.replace(b'"b"', b'"a"')
    yield whole.replace(b"[2]", b"[-2]")
    yield whole.replace(b"[2]", b"[1e0]")


def attention_seeds():
    """Decisions drawn at random: the target decodes any bytes. Most are short, since absent decisions are plain."""
    source = random.Random(20260101)
    for length in [0, 8, 12, 16] + [24] * 8 + [48] * 16 + [96] * 48 + [160] * 48:
        yield bytes(source.randrange(256) for _ in range(length))


def main():
    folder = pathlib.Path(sys.argv[1])
    for target, seeds in (("npy", npy_seeds), ("safetensors", safetensors_seeds), ("attention", attention_seeds)):
        (folder / target).mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds()):
            (folder / target / f"seed-{number:03}").write_bytes(seed)


if __name__ == "__main__":
    main()
