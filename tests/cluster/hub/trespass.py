"""What another Unix user can do to some paths."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable

UNPRIVILEGED_USER = 65534
_TRY = """
import json, os, socket, sys
user = int(sys.argv[1])
os.setgroups([]); os.setgid(user); os.setuid(user)
done = []
for path in json.load(sys.stdin):
    try:
        if path.startswith("connect "):
            socket.socket(socket.AF_UNIX).connect(path[8:])
        elif os.path.isdir(path):
            os.listdir(path)
        else:
            open(path, "rb").close()
        done.append(path)
    except PermissionError:
        pass
print(json.dumps(done))
"""


def trespass(paths: Iterable[str], *, user: int = UNPRIVILEGED_USER) -> list[str]:
    """Of these the ones that the user can list, read, or, with `connect ` before a socket's path, connect to.

    Raises:
        CalledProcessError: something else than a lack of rights was in the way, as a path that is not there.
    """
    asked = subprocess.run(
        [sys.executable, "-c", _TRY, str(user)],
        input=json.dumps(list(paths)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return list(json.loads(asked.stdout))
