"""The machine that the pages of the documentation run on: a network of its own, and in it what they take to be there.

Ports on the pages are free whatever else runs here, and the names on them are this machine.
"""
import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

NAMES = "127.0.0.1 db db2 db3 postgres pgbouncer collector\n127.0.0.2 db1\n"
MS_BIND = 4096


def alone():
    """Goes on in a network namespace, where only loopback is, and which ends with this process."""
    if not os.environ.get("DOCS_ALONE"):
        if not pathlib.Path("tests/clients/node_modules").exists():
            subprocess.run(["npm", "ci", "--prefix", "tests/clients", "--no-audit", "--no-fund", "--silent"], check=True)
        user = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
        os.environ["DOCS_ALONE"] = "yes"
        os.execvp("unshare", ["unshare", "--net", "--mount", *user, "--", sys.executable, *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "address", "add", "10.0.0.7/32", "dev", "lo"], check=True)
    with tempfile.NamedTemporaryFile("w") as hosts:
        hosts.write("127.0.0.1 localhost\n" + NAMES)
        hosts.flush()
        os.chmod(hosts.name, 0o644)
        # By itself, since mount(8) does nothing for those who are not root, whatever they may.
        failed = ctypes.CDLL(None).mount(hosts.name.encode(), b"/etc/hosts", None, MS_BIND, None)
    assert not failed, "names cannot be given to this machine"


def wait_for(condition, what, within=60):
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"no {what} in time"
        time.sleep(0.2)


@contextlib.contextmanager
def a_database():
    """What the pages call postgres://user:password@db/app, and the pooler in front of it. Neither runs as root."""
    other = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    installed = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    programs = os.environ.get("SWITCHBOARD_PG_BIN") or installed[-1]
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as running:
        here = pathlib.Path(directory)
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "cwd": "/", **other}
        (here / "password").write_text("password")
        (here / "users").write_text('"user" "password"\n')
        (here / "pgbouncer.ini").write_text(
            f"[databases]\napp = host=127.0.0.1 port=5432\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = 6432\nunix_socket_dir =\n"
            f"auth_type = scram-sha-256\nauth_file = {here}/users\npool_mode = transaction\nignore_startup_parameters = extra_float_digits\n"
        )
        if other:
            shutil.chown(here, "postgres")

        def go_on(*command):
            log = running.enter_context(open(here / f"{pathlib.Path(command[0]).name}.log", "w"))
            process = subprocess.Popen(command, **{**quiet, "stdout": log}, stderr=log)
            running.callback(process.wait)
            running.callback(process.send_signal, signal.SIGINT)

        data, password = f"{here}/data", f"--pwfile={here}/password"
        initdb = [f"{programs}/initdb", "-D", data, "--username=user", "--auth=scram-sha-256", password, "--no-sync"]
        subprocess.run(initdb, check=True, **quiet)
        go_on(f"{programs}/postgres", "-D", data, "-k", "", "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off")
        wait_for(lambda: not subprocess.run(["pg_isready", "-h", "db"], stdout=subprocess.DEVNULL).returncode, "PostgreSQL")
        subprocess.run(["createdb", "-h", "db", "-U", "user", "app"], check=True, env={**os.environ, "PGPASSWORD": "password"})
        go_on("pgbouncer", "--quiet", f"{here}/pgbouncer.ini")
        yield
