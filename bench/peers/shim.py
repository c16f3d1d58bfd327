"""tilewise in this process through ctypes, for comparing it with peers and for watching its memory.

`build()` builds build/release's peer_shim with the release preset; `Shim` loads it. No torch and no numpy here.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARY = ROOT / "build" / "release" / "lib" / "libpeer_shim.so"


@dataclass(frozen=True)
class Problem:
    """One forward problem, in the fields of the benchmarks' JSON. A band's bound of None is unbounded."""

    name: str
    B: int
    Hq: int
    Hkv: int
    Sq: int
    Sk: int
    D: int
    Dv: int
    dtype: str = "float32"
    left: int | None = None
    right: int | None = None
    alignment: str = "top_left"

    @property
    def delta(self) -> int:
        return self.Sk - self.Sq if self.alignment == "bottom_right" else 0

    @property
    def bounded(self) -> bool:
        return self.left is not None or self.right is not None

    @property
    def causal(self) -> bool:
        return self.left is None and self.right == 0

    def visible_pairs(self) -> int:
        """Visible (query, key) pairs of one (batch, head)."""
        if not self.bounded:
            return self.Sq * self.Sk
        pairs = 0
        for i in range(self.Sq):
            first = 0 if self.left is None else max(0, i + self.delta - self.left)
            last = self.Sk - 1 if self.right is None else min(self.Sk - 1, i + self.delta + self.right)
            pairs += max(0, last - first + 1)
        return pairs

    def flops(self) -> int:
        return 2 * (self.D + self.Dv) * self.B * self.Hq * self.visible_pairs()

    def to_json(self) -> dict:
        fields = ("name", "B", "Hq", "Hkv", "Sq", "Sk", "D", "Dv", "dtype")
        band = {"band": [self.left, self.right], "alignment": self.alignment, "pass": "forward"}
        return {field: getattr(self, field) for field in fields} | band


class _Problem(ctypes.Structure):  # peer_shim.cpp's PeerProblem
    _fields_ = (
        [(name, ctypes.c_int64) for name in ("B", "Hq", "Hkv", "Sq", "Sk", "D", "Dv", "left", "right")]
        + [(name, ctypes.c_int32) for name in ("left_bounded", "right_bounded", "bottom_right", "threads")]
        + [(name, ctypes.c_char_p) for name in ("dtype", "kernel")]
    )


class Refused(Exception):
    """tilewise did not take the problem; the message is its own."""


class Plan:
    """A problem planned on four addresses, which must outlive it. Calling it runs attention once."""

    def __init__(self, shim: ctypes.CDLL, handle: int) -> None:
        self._shim = shim
        self._handle = handle
        self._run = shim.peer_run
        self.kernel: str = shim.peer_kernel(handle).decode()
        self.workspace_bytes: int = shim.peer_workspace_bytes(handle)

    def __call__(self) -> None:
        if self._run(self._handle):
            raise RuntimeError("tilewise failed; its message is above")

    def close(self) -> None:
        self._shim.peer_free(self._handle)
        self._handle = None


class Shim:
    def __init__(self, path: Path = LIBRARY) -> None:
        self._library = ctypes.CDLL(str(path))
        plan, address, text = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p
        signatures = {
            "peer_plan": (plan, [ctypes.POINTER(_Problem), address, address, address, address, text, ctypes.c_size_t]),
            "peer_run": (ctypes.c_int, [plan]),
            "peer_kernel": (text, [plan]),
            "peer_workspace_bytes": (ctypes.c_int64, [plan]),
            "peer_free": (None, [plan]),
            "peer_machine": (text, []),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments

    def plan(self, problem: Problem, addresses: tuple[int, int, int, int], threads: int, kernel: str = "") -> Plan:
        """Plans on the addresses of contiguous q, k, v, o. Raises Refused with the library's reason."""
        p = problem
        fields = _Problem(p.B, p.Hq, p.Hkv, p.Sq, p.Sk, p.D, p.Dv, p.left or 0, p.right or 0, p.left is not None,
                          p.right is not None, p.alignment == "bottom_right", threads, p.dtype.encode(),
                          kernel.encode())
        message = ctypes.create_string_buffer(4096)
        handle = self._library.peer_plan(ctypes.byref(fields), *addresses, message, len(message))
        if not handle:
            raise Refused(message.value.decode())
        return Plan(self._library, handle)

    def machine(self) -> str:
        """The machine object of the benchmarks' JSON, as text; measures the peaks, which takes a second or two."""
        return self._library.peer_machine().decode()


def build() -> None:
    """Builds the shim with the release preset; quick when nothing changed."""
    for command in (["cmake", "--preset", "release"], ["cmake", "--build", "--preset", "release", "-t", "peer_shim"]):
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}")
