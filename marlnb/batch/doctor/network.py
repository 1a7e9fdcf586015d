"""The internet: whether this machine has a way out, and which cells would go looking for it."""

from __future__ import annotations

import ast
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from marlnb.batch.doctor.cells import Cell
from marlnb.batch.doctor.check import Answer, Subject, check

ROUTES = Path("/proc/net/route")
ROUTES_6 = Path("/proc/net/ipv6_route")
_UP = 0x1
_REJECT = 0x200
_COMMAND = re.compile(
    r"\b(?:(?:pip3?|uv|conda|mamba|micromamba|apt|apt-get|npm)\s+(?:\S+\s+)*?(?:install|add|sync|download|create)"
    r"|git\s+(?:clone|pull|fetch|push|submodule)|wget|curl|gdown|gsutil|aws|scp|rsync|ssh|kaggle|huggingface-cli|hf)\b"
)
_HEADS = ("requests.", "httpx.", "aiohttp.", "urllib.request.url", "kagglehub.", "wget.download", "gdown.", "boto3.")
_TAILS = ("from_pretrained", "hf_hub_download", "snapshot_download", "load_state_dict_from_url", "download_url_to_file")
_WHOLE = re.compile(
    r"(?:.*\.)?(?:hub\.load|urlopen|urlretrieve|nltk\.download|fetch_openml|fetch_20newsgroups|clone_from"
    r"|datasets\.load_dataset|minari\.download_dataset|wandb\.login|use_artifact|download_and_extract_archive)"
)


@check("internet")
def _way_out(subject: Subject) -> Iterator[Answer]:
    """Looks at this machine's own tables: no packet is sent."""
    where = f"{socket.gethostname()}" + ("" if subject.on_node else " (this machine; --on-node asks the node)")
    if has_route_out():
        yield "ok", f"{where} has a route to other networks", ""
    else:
        yield "ok", f"{where} has no route to other networks: what a job needs must be here before", ""
    if not subject.profile.offline and subject.profile.executor != "local":
        text = "the profile says `offline: false`: loggers and hubs of weights will look for their servers"
        yield "warn", text, "leave `offline` out of the profile where nodes have no internet"


@check("downloads")
def _downloads(subject: Subject) -> Iterator[Answer]:
    found = [(cell.number, what) for cell in subject.cells for what in dict.fromkeys(_reaching(cell))]
    for number, what in found:
        remedy = "do it before the batch, where there is internet, and let the cell read what it left on disk"
        if re.search(r"\b(pip3?|uv|conda|mamba)\b", what):
            remedy = (
                "install it in the environment before the batch: jobs side by side would also write over each other"
            )
        yield "warn", f"cell {number} needs a network: {what}", remedy
    if subject.cells and not found:
        yield "ok", "no cell is seen to need a network", ""


def has_route_out(routes: Path = ROUTES, routes_6: Path = ROUTES_6) -> bool:
    """Whether the kernel's table of routes has one for every address; False as well where there is no table."""
    for line in _lines(routes)[1:]:
        fields = line.split()
        flags = int(fields[3], 16)
        if fields[1] == "00000000" and fields[7] == "00000000" and flags & _UP and not flags & _REJECT:
            return True
    for line in _lines(routes_6):
        fields = line.split()
        flags = int(fields[8], 16)
        if set(fields[0]) == {"0"} and fields[1] == "00" and flags & _UP and not flags & _REJECT and fields[9] != "lo":
            return True
    return False


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _reaching(cell: Cell) -> Iterator[str]:
    for command in cell.commands():
        if _COMMAND.search(command) and "--no-index" not in command:
            yield command.strip()[:80]
    for name, call in cell.calls():
        if _is_download(name, call):
            yield f"{name}(...)"


def _is_download(name: str, call: ast.Call) -> bool:
    if name.startswith(_HEADS) or name.rpartition(".")[2] in _TAILS or _WHOLE.fullmatch(name):
        return not any(item.arg == "local_files_only" and _is_true(item.value) for item in call.keywords)
    if any(item.arg == "download" and _is_true(item.value) for item in call.keywords):
        return True
    first = call.args[0] if call.args else None
    is_url = isinstance(first, ast.Constant) and re.match(r"(https?|ftp|s3|gs)://", str(first.value)) is not None
    return is_url and name.rpartition(".")[2].startswith(("read_", "open", "load", "get", "imread"))


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
