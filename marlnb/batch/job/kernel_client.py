"""The kernel of a job: papermill's client, with a kernel that ends with its notebook and with the job's process."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import zmq
from jupyter_core.utils import run_sync
from nbformat import NotebookNode
from papermill.clientwrap import PapermillNotebookClient

IGNORED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
PR_SET_PDEATHSIG = 1
# by default ZMQ drops messages beyond 1,000 unsent and 1,000 unread ones; only the kernel can lift its own limit
KEEP_UNSENT_MESSAGES = """(lambda thread: thread.schedule(
    lambda: thread.socket.setsockopt(__import__("zmq").SNDHWM, 0)
))(get_ipython().kernel.iopub_thread)"""


class _CellsDoneError(Exception):
    """The kernel is no longer needed."""


class KernelClient(PapermillNotebookClient):
    """papermill's client, which ends its kernel and passes the cells' output to the job's log.

    Attributes:
        exit_code: of the kernel, once it has ended; None before.
    """

    exit_code: int | None = None
    _process: Any = None

    def execute_as_job(self, cwd: Path, environment: dict[str, str]) -> None:
        """Executes all cells; afterwards the kernel has ended in any case."""
        try:
            # Python 3.12 warns about fork with threads; the code after the fork takes no lock
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
                self.execute(cwd=str(cwd), env=environment, preexec_fn=_prepare_kernel_process)
        except _CellsDoneError:
            return
        finally:
            if self.km is not None:
                self._kill()
                with suppress(Exception):  # the process has ended; this closes its sockets
                    self._cleanup_kernel()

    async def async_start_new_kernel_client(self) -> Any:
        self._process = self.km.provisioner.process
        try:
            client = await super().async_start_new_kernel_client()
        except Exception:
            self.exit_code = self._process.poll()
            raise
        client.iopub_channel.socket.setsockopt(zmq.RCVHWM, 0)
        if self.km.kernel_spec.language == "python":  # others have no such thread
            client.execute(KEEP_UNSENT_MESSAGES, silent=True, stop_on_error=False)
        return client

    # nbclient's attribute is bound to its own coroutine
    start_new_kernel_client = run_sync(async_start_new_kernel_client)

    def papermill_execute_cells(self) -> None:
        try:
            super().papermill_execute_cells()
        except BaseException:
            self.exit_code = self._process.poll()
            self._kill()
            raise
        if self.nb_man.requests.pending:  # only a few seconds remain: no orderly shutdown
            self._kill()
            raise _CellsDoneError

    def process_message(self, msg: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if msg["msg_type"] in ("display_data", "update_display_data"):
            self.nb_man.attempt.show(msg["content"].get("data", {}).get("text/plain", ""))
        return super().process_message(msg, *args, **kwargs)

    def log_output_message(self, output: NotebookNode) -> None:
        text = output.text if output.output_type == "stream" else output.get("data", {}).get("text/plain", "")
        if text:
            text = "".join(text)
            self.nb_man.attempt.print(text if text.endswith("\n") else f"{text}\n")

    def _kill(self) -> None:
        process = self._process or getattr(getattr(self.km, "provisioner", None), "process", None)
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def _prepare_kernel_process() -> None:
    """Runs between fork and exec. A scheduler signals all processes of a job; only the job's own process reacts.

    When that process dies, even if it is killed, the kernel is killed too: otherwise it would train on unnoticed.
    """
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # on other systems ipykernel checks its parent


@contextmanager
def short_runtime_folder() -> Iterator[str]:
    """A private folder for the kernel's sockets, whose paths are limited to about 100 characters."""
    before = os.environ.get("JUPYTER_RUNTIME_DIR")
    with tempfile.TemporaryDirectory(prefix="marlnb-", ignore_cleanup_errors=True) as folder:
        os.environ["JUPYTER_RUNTIME_DIR"] = folder
        try:
            yield folder
        finally:
            del os.environ["JUPYTER_RUNTIME_DIR"]
            if before is not None:
                os.environ["JUPYTER_RUNTIME_DIR"] = before
