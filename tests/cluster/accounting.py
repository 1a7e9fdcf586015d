"""Accounting, where it is wanted: a database on a socket of its own and slurmdbd, so that `sacct` answers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.cluster.processes import detached, end, pid_in, run, until
from tests.cluster.settings import Settings

_GRANT = (
    "create database if not exists slurm_acct_db; create user if not exists 'slurm'@'localhost' identified by 'slurm'; "
    "grant all on slurm_acct_db.* to 'slurm'@'localhost'; flush privileges"
)


def begin_accounting(settings: Settings) -> None:
    _begin_database(settings)
    conf = settings.folder("slurmdbd.conf")
    conf.write_text(
        f"""\
AuthType=auth/munge
AuthInfo=socket={settings.munge_socket}
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={settings.port + 2}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
LogFile={settings.state}/log/slurmdbd.log
PidFile={settings.state}/slurmdbd.pid
"""
    )
    conf.chmod(0o600)
    run("slurmdbd", env={"SLURM_CONF": str(conf), "MYSQL_UNIX_PORT": str(_socket(settings))})

    def answers() -> bool:
        words = ["sacctmgr", "--noheader", "--parsable", "show", "cluster"]
        asked = subprocess.run(words, env=_environment(settings), capture_output=True)
        return asked.returncode == 0

    until("slurmdbd answers", answers, timeout_s=60)


def end_accounting(settings: Settings) -> None:
    for file in (settings.folder("slurmdbd.pid"), settings.folder("db") / "mariadbd.pid"):
        pid = pid_in(file)
        end([pid] if pid else [], patience_s=30)


def _begin_database(settings: Settings) -> None:
    data, log = settings.folder("db"), settings.folder("log")
    if not (data / "mysql").is_dir():
        data.mkdir(exist_ok=True)
        run("chown", "mysql", data)
        how = ("--user=mysql", f"--datadir={data}", "--skip-test-db", "--auth-root-authentication-method=socket")
        run("mariadb-install-db", *how, f"--tmpdir={data}")  # the tests' own folder is root's
    words = [
        *("mariadbd", "--no-defaults", "--user=mysql", f"--datadir={data}", f"--socket={_socket(settings)}"),
        *(f"--pid-file={data}/mariadbd.pid", "--skip-networking", "--innodb-buffer-pool-size=64M"),
        *("--innodb-lock-wait-timeout=900", f"--tmpdir={data}"),
    ]
    detached(words, log / "mariadbd.log", log / "mariadbd.log")
    client = ["mariadb", f"--socket={_socket(settings)}", "-e"]

    def answers() -> bool:
        return subprocess.run([*client, "select 1"], capture_output=True).returncode == 0

    until("the database answers", answers, timeout_s=60)
    run(*client, _GRANT)


def _socket(settings: Settings) -> Path:
    return settings.folder("db") / "my.sock"


def _environment(settings: Settings) -> dict[str, str]:
    return {**os.environ, "SLURM_CONF": str(settings.conf)}
