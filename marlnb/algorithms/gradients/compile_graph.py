"""The process that compiles a traced step: `python -m marlnb.algorithms.gradients.compile_graph GRAPH LIBRARY`."""

from __future__ import annotations

import fcntl
import os
import pickle
import sys
from pathlib import Path

import torch

NICE = 5  # the training that this is for comes first


def compile_graph(source: Path, library: Path) -> None:
    """Compiles what `gradients.compiled` wrote to `source`; of several processes, one does the work."""
    from torch._inductor import aoti_compile_and_package

    with open(library.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if library.exists():
            return
        graph, sizes, threads = pickle.loads(source.read_bytes())
        torch.set_num_threads(threads)
        inputs = [torch.zeros(shape, dtype=getattr(torch, dtype.removeprefix("torch."))) for shape, dtype in sizes]
        written = library.with_name(f"{library.stem}.{os.getpid()}.pt2")
        with torch.no_grad():
            aoti_compile_and_package(torch.export.export(graph, tuple(inputs)), package_path=str(written))
        written.replace(library)


if __name__ == "__main__":
    os.nice(NICE)
    compile_graph(Path(sys.argv[1]), Path(sys.argv[2]))
