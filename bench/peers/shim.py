"""tilewise in this process through ctypes, for comparing it with peers and for watching its memory.

`build()` builds build/release's peer_shim with the release preset; `Shim` loads it. No torch and no numpy here.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARY = ROOT / "build" / "release" / "lib" / "libpeer_shim.so"
MAX_FLOPS = 2**37  # of one call, without --full


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
    flops: float = 0  # useful, of one call
    plain: bool = True  # no option beyond the band: what `Shim.plan` and the peers can run

    @property
    def delta(self) -> int:
        return self.Sk - self.Sq if self.alignment == "bottom_right" else 0

    @property
    def bounded(self) -> bool:
        return self.left is not None or self.right is not None

    @property
    def causal(self) -> bool:
        return self.left is None and self.right == 0

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
            "peer_kernels": (text, []),
            "peer_machine": (text, []),
            "peer_grid": (text, [text, ctypes.c_double, text, ctypes.c_size_t]),
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

    def kernels(self, prefix: str) -> list[str]:
        """The names of all kernels that start with `prefix`."""
        names = self._library.peer_kernels().decode().split()
        found = [name for name in names if name.startswith(prefix)]
        if not found:
            sys.exit(f"no kernel is named {prefix} or starts so; there are {', '.join(names)}")
        return found

    def machine(self) -> dict:
        """The machine object of the benchmarks' JSON; measures the peaks, which takes about two seconds."""
        return json.loads(self._library.peer_machine())

    def grid(self, name: str, full: bool) -> list[Problem]:
        """The problems of a grid, named or a file; unless `full`, shrunk as `tilewise bench` does."""
        message = ctypes.create_string_buffer(4096)
        text = self._library.peer_grid(name.encode(), 0 if full else MAX_FLOPS, message, len(message))
        if text is None:
            sys.exit(message.value.decode())
        return [Problem(**fields) for fields in json.loads(text)]


def build() -> None:
    """Builds the shim with the release preset; quick when nothing changed."""
    for command in (["cmake", "--preset", "release"], ["cmake", "--build", "--preset", "release", "-t", "peer_shim"]):
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}")
