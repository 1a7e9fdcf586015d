"""The compute node's network: one link to the login node, and a black hole in which everything else is seen to fall.

On a node that only lacks a route a connection fails without a trace of who tried. So the namespace has a default route,
for both kinds of address, that leads into a link whose other end lies in the same namespace: nothing gets out, and
tcpdump writes down every attempt. The name server is in the black hole too.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.cluster.processes import detached, end, pid_in, run, until
from tests.cluster.settings import Settings

_GATEWAY, _GATEWAY6, _HARDWARE = "198.51.100.1", "fd77:7777::1", "02:00:00:00:77:01"


def make_namespace(settings: Settings) -> None:
    name, link = settings.namespace, settings.link
    run("ip", "netns", "add", name)
    settings.folder("namespace").write_text(name)
    run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
    run("ip", "addr", "add", f"{settings.login_address}/30", "dev", link)
    run("ip", "link", "set", link, "up")
    inside = (
        "link add out type veth peer name hole",
        f"addr add {settings.node_address}/30 dev eth0",
        "addr add 198.51.100.2/30 dev out",
        *(f"link set {device} up" for device in ("lo", "eth0", "out", "hole")),
        f"neigh add {_GATEWAY} lladdr {_HARDWARE} dev out nud permanent",
        f"route add default via {_GATEWAY} dev out",
    )
    for line in inside:
        run("ip", "-n", name, *line.split())
    if Path("/proc/net/if_inet6").exists():
        for line in (
            "-6 addr add fd77:7777::2/64 dev out nodad",
            f"-6 neigh add {_GATEWAY6} lladdr {_HARDWARE} dev out nud permanent",
            f"-6 route add default via {_GATEWAY6} dev out",
        ):
            run("ip", "-n", name, *line.split())


def remove_namespace(settings: Settings) -> None:
    """The links go with it."""
    run("ip", "netns", "del", settings.namespace, check=False)
    run("ip", "link", "del", settings.link, check=False)
    settings.folder("namespace").unlink(missing_ok=True)


def begin_listening(settings: Settings) -> None:
    """Writes a line into `log/packets.txt` for each packet that a process of the node sends, but SLURM's own."""
    slurm = f"host {settings.login_address} and tcp and (port {settings.port} or port {settings.port + 1})"
    noise = "arp or (ip6 and dst net ff00::/8)"  # what the kernel says by itself when a link comes up
    words = ["-i", "any", "-Q", "out", "-nn", "-l", "-Z", "root", f"not ({slurm}) and not ({noise})"]
    _errors(settings).unlink(missing_ok=True)
    tcpdump = ["ip", "netns", "exec", settings.namespace, "tcpdump", *words]
    pid = detached(tcpdump, settings.folder("log") / "packets.txt", _errors(settings))
    settings.folder("tcpdump.pid").write_text(str(pid))
    until("tcpdump listens", lambda: b"listening on" in _errors(settings).read_bytes(), timeout_s=15)


def end_listening(settings: Settings) -> None:
    pid = pid_in(settings.folder("tcpdump.pid"))
    end([pid] if pid else [])


def sent(settings: Settings) -> list[str]:
    """tcpdump's lines so far: time, device, `Out`, who to whom; SLURM's own link is not among them."""
    text = (settings.folder("log") / "packets.txt").read_text(errors="replace")
    return [line for line in text.splitlines() if " Out " in line]


def by_device(lines: list[str]) -> Counter[str]:
    """How many packets were sent through `lo`, `eth0` (to the login node) and `out` (to anywhere else)."""
    return Counter(line.split()[1] for line in lines)


def _errors(settings: Settings) -> Path:
    return settings.folder("log") / "tcpdump.txt"
