"""The hub of the tests. docs/jupyterhub.md shows a real hub's: what differs is how people log in, and as whom jobs run.

Everything else is as an administrator would have it: servers are SLURM jobs on a node that reaches the hub and nothing
else, people choose how long theirs lives, and kernels talk over sockets that only their owner can open.
"""

import html
import os
import re
from pathlib import Path

import batchspawner  # adds the address under which servers tell the hub their port

c = get_config()  # noqa: F821

STATE, BIN = Path(os.environ["HUB_STATE"]), os.environ["HUB_BIN"]
LOGIN, NODE, PORT = os.environ["HUB_ADDRESS"], os.environ["HUB_NODE_ADDRESS"], int(os.environ["HUB_PORT"])
HOME = STATE / "home"

# the proxy that browsers talk to, and the hub that servers on the node talk to
c.JupyterHub.bind_url = f"http://127.0.0.1:{PORT}"
c.JupyterHub.hub_bind_url = c.JupyterHub.hub_connect_url = f"http://{LOGIN}:{PORT + 1}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{PORT + 2}"
c.ConfigurableHTTPProxy.command = [os.environ["HUB_PROXY"]]
c.ConfigurableHTTPProxy.pid_file = str(STATE / "proxy.pid")
c.JupyterHub.cookie_secret_file = str(STATE / "cookie_secret")
c.JupyterHub.db_url = f"sqlite:///{STATE}/hub.sqlite"

# of the tests alone
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = os.environ["HUB_PASSWORD"]
c.Authenticator.allow_all = True
c.BatchSpawnerBase.exec_prefix = ""  # jobs are root's, who alone may read this machine's Python

c.JupyterHub.spawner_class = batchspawner.SlurmSpawner
c.BatchSpawnerBase.batchspawner_singleuser_cmd = f"{BIN}/batchspawner-singleuser"
c.Spawner.cmd = [f"{BIN}/jupyterhub-singleuser"]
c.Spawner.args = [
    "--allow-root",  # of the tests alone
    "--KernelManager.transport=ipc",  # every user with a job on a node can reach the node's TCP ports
    "--LabApp.news_url=None",  # neither this nor the next can be reached from the node
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
]
c.Spawner.notebook_dir = str(HOME / "work")
c.Spawner.default_url = "/lab"
c.Spawner.start_timeout, c.Spawner.http_timeout = 180, 90
c.Spawner.env_keep = ["PATH", "LANG", "LC_ALL", "SLURM_CONF", *[name for name in os.environ if "MARLNB_TEST" in name]]
c.Spawner.environment = {  # where a real user has a home of their own
    "JUPYTER_CONFIG_DIR": str(HOME / "config"),
    "JUPYTER_DATA_DIR": str(HOME / "data"),
    "JUPYTER_RUNTIME_DIR": str(HOME / "data" / "runtime"),
    "IPYTHONDIR": str(HOME / "ipython"),
}

c.SlurmSpawner.state_exechost_exp = NODE  # the node's name means nothing to this machine
c.SlurmSpawner.req_partition, c.SlurmSpawner.req_gres, c.SlurmSpawner.req_nprocs = "debug", "gpu:1", "2"
c.SlurmSpawner.req_memory = "4G"
c.SlurmSpawner.req_srun = ""  # the server is the job's script itself: SLURM's signals reach it
c.SlurmSpawner.batch_script = f"""#!/bin/bash
#SBATCH --job-name=jupyter --chdir={HOME}/work --output={STATE}/server_%j.log
#SBATCH --export={{{{keepvars}}}} --no-requeue
#SBATCH --partition={{{{partition}}}} --time={{{{runtime}}}}
#SBATCH --cpus-per-task={{{{nprocs}}}} --mem={{{{memory}}}} --gres={{{{gres}}}}
set -eu
{{{{cmd}}}}
"""

MINUTES = (2, 3, 20, 60)


def ask_for_time(spawner):
    options = "".join(f'<option value="{minutes}">{minutes} minutes</option>' for minutes in MINUTES)
    return f'<label>For how long, {html.escape(spawner.user.name)}? <select name="runtime">{options}</select></label>'


def checked_time(form):
    """What comes back is put into a script that a shell reads: only what was offered may pass."""
    (chosen,) = form["runtime"]
    if not re.fullmatch("[0-9]+", chosen) or int(chosen) not in MINUTES:
        raise ValueError(f"choose one of {MINUTES} minutes")
    return {"runtime": chosen}


c.Spawner.options_form = ask_for_time
c.Spawner.options_from_form = checked_time
