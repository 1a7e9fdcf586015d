"""Checks whether this machine has internet, and which cells need it."""

from __future__ import annotations

import ast
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from marlnb.batch.doctor.cells import Cell
from marlnb.batch.doctor.check import Answer, check
from marlnb.batch.doctor.request import DoctorRequest

ROUTES = Path("/proc/net/route")
ROUTES_6 = Path("/proc/net/ipv6_route")
_UP = 0x1
_REJECT = 0x200
_COMMAND = re.compile(
    r"\b(?:(?:pip3?|uv|conda|mamba|micromamba|apt|apt-get|npm)\s+(?:\S+\s+)*?(?:install|add|sync|download|create)"
    r"|git\s+(?:clone|pull|fetch|push|submodule)|wget|curl|gdown|gsutil|aws|scp|rsync|ssh|kaggle|huggingface-cli|hf)\b"
)
_PREFIXES = ("requests.", "httpx.", "aiohttp.", "urllib.request.url", "kagglehub.", "wget.download", "gdown.", "boto3.")
_METHODS = (
    *("from_pretrained", "hf_hub_download", "snapshot_download"),
    *("load_state_dict_from_url", "download_url_to_file"),
)
_FUNCTIONS = re.compile(
    r"(?:.*\.)?(?:hub\.load|urlopen|urlretrieve|nltk\.download|fetch_openml|fetch_20newsgroups|clone_from"
    r"|datasets\.load_dataset|minari\.download_dataset|wandb\.login|use_artifact|download_and_extract_archive)"
)


@check("internet")
def _way_out(request: DoctorRequest) -> Iterator[Answer]:
    """Reads this machine's routing tables; no packet is sent."""
    machine = socket.gethostname() + ("" if request.on_node else " (this machine; --on-node checks the node)")
    no_route = "no route to other networks: download what a job needs beforehand"
    yield "ok", f"{machine} has {'a route to other networks' if has_route_out() else no_route}", ""
    if not request.profile.offline and request.profile.executor != "local":
        text = "the profile has `offline: false`: loggers and model hubs will connect to their servers"
        yield "warn", text, "remove `offline` from the profile if nodes have no internet"


@check("downloads")
def _downloads(request: DoctorRequest) -> Iterator[Answer]:
    downloads = [(cell.number, text) for cell in request.cells for text in _downloads_of(cell)]
    for number, text in downloads:
        remedy = "do it before the batch, with internet, and let the cell read the result from disk"
        if re.search(r"\b(pip3?|uv|conda|mamba)\b", text):
            remedy = "install it in the environment before the batch: parallel jobs would also overwrite each other"
        yield "warn", f"cell {number} needs a network: {text}", remedy
    if request.cells and not downloads:
        yield "ok", "no cell seems to need a network", ""


def has_route_out(routes: Path = ROUTES, routes_6: Path = ROUTES_6) -> bool:
    """Whether the kernel's routing table has a default route; False without a table."""
    table = [(int(row[3], 16), row[1] == row[7] == "00000000") for row in _rows(routes)[1:]]
    table += [(int(row[8], 16), {*row[0], *row[1]} == {"0"} and row[9] != "lo") for row in _rows(routes_6)]
    return any(is_default and flags & _UP and not flags & _REJECT for flags, is_default in table)


def _rows(path: Path) -> list[list[str]]:
    try:
        return [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return []


def _downloads_of(cell: Cell) -> list[str]:
    commands = [text for text in cell.commands() if _COMMAND.search(text) and "--no-index" not in text]
    calls = [f"{name}(...)" for name, call in cell.calls() if _is_download(name, call)]
    return list(dict.fromkeys([*(command.strip()[:80] for command in commands), *calls]))


def _is_download(name: str, call: ast.Call) -> bool:
    if name.startswith(_PREFIXES) or name.rpartition(".")[2] in _METHODS or _FUNCTIONS.fullmatch(name):
        return not any(item.arg == "local_files_only" and _is_true(item.value) for item in call.keywords)
    if any(item.arg == "download" and _is_true(item.value) for item in call.keywords):
        return True
    first = call.args[0] if call.args else None
    is_url = isinstance(first, ast.Constant) and re.match(r"(https?|ftp|s3|gs)://", str(first.value)) is not None
    return is_url and name.rpartition(".")[2].startswith(("read_", "open", "load", "get", "imread"))


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
