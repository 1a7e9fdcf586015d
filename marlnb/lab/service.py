"""serve: answers the JupyterLab extension in a kernel, over a comm that carries JSON texts.

A request is `{"id": 1, "verb": "runs", "arguments": {...}}`; its answer is `{"id": 1, "answer": {...}}` or
`{"id": 1, "error": "..."}`. They are texts of ASCII, since names of files may hold bytes that are no UTF-8.
"""

from __future__ import annotations

import json
import os
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from marlnb.errors import MarlnbError, unknown
from marlnb.lab.verbs import Session
from marlnb.version import __version__

TARGET = "marlnb"
SLOW = ("batch", "cancel", "code", "compare", "job", "names", "queue", "requeue", "run_map")
PROTOCOL = 1  # of the messages; the extension compares it with its own


def serve() -> None:
    """Registers the comm in this IPython kernel. Safe to call again."""
    from IPython import get_ipython

    get_ipython().kernel.comm_manager.register_target(TARGET, _open)


def _open(comm: Any, message: Mapping[str, Any]) -> None:
    session = Session()

    def answer(text: str) -> None:
        comm.send({"text": reply(session, text)})

    def receive(request: Mapping[str, Any]) -> None:
        text = request["content"]["data"]["text"]
        if json.loads(text).get("verb") in SLOW:  # meanwhile other requests are answered
            threading.Thread(target=answer, args=(text,), daemon=True).start()
        else:
            answer(text)

    comm.on_msg(receive)
    comm.send({"text": json.dumps({"protocol": PROTOCOL, "version": __version__, "folder": os.getcwd()})})


def reply(session: Session, text: str) -> str:
    """The answer to one request, both as JSON; whatever happens, there is one."""
    number = None
    try:
        request = json.loads(text)
        number = request.get("id")
        return json.dumps({"id": number, "answer": _answer(session, request)}, allow_nan=False)
    except (MarlnbError, OSError) as error:
        return json.dumps({"id": number, "error": str(error)})
    except Exception as error:  # the panel must show it rather than wait
        traceback.print_exc()
        return json.dumps({"id": number, "error": f"{type(error).__name__}: {error}"})


def _answer(session: Session, request: Mapping[str, Any]) -> Any:
    verbs: dict[str, Callable[..., Any]] = {
        name: getattr(session, name) for name in dir(session) if not name.startswith("_")
    }
    if request.get("verb") not in verbs:
        raise MarlnbError(unknown("verb", str(request.get("verb")), verbs))
    return verbs[request["verb"]](**request.get("arguments", {}))
