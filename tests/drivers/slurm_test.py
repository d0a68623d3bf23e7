"""Laws of campaigns that Slurm starts, on a cluster of this machine alone. Usage: slurm_test.py PROGRAM."""

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import campaign
from campaign import CAMPAIGN, FINDINGS

# Nothing of the machine's own Slurm: files, sockets and ports are the test's. Nothing that needs systemd or cgroups.
CONF = """
ClusterName=drivers
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=node NodeHostname={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    """Slurm on this machine: its key server, its controller, and one node."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="slurm-")
        os.chmod(self.folder, 0o755)
        self.daemons = []
        for folder in ("state", "spool"):
            os.mkdir(f"{self.folder}/{folder}")
        self.conf = f"{self.folder}/slurm.conf"
        with open(self.conf, "w", encoding="utf-8") as file:
            file.write(CONF.format(folder=self.folder, host=socket.gethostname().partition(".")[0], user=getpass.getuser(),
                                   ports=_free_ports(2)))
        with open(os.open(f"{self.folder}/munge.key", os.O_CREAT | os.O_WRONLY, 0o400), "wb") as file:
            file.write(os.urandom(128))

    def start(self):
        """Nothing, or why there is no cluster."""
        munge = [f"--{name}-file={self.folder}/munge.{name}" for name in ("key", "log", "pid", "seed")]
        self._daemon("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", *munge)
        self._daemon("slurmctld", "-D", "-f", self.conf)
        self._daemon("slurmd", "-D", "-f", self.conf)
        end, state = time.monotonic() + 60, ""
        while time.monotonic() < end:
            ended = [daemon.args[0] for daemon in self.daemons if daemon.poll() is not None]
            if ended:
                return f"{' and '.join(ended)} ended: {self._logs()}"
            state = self.ask("sinfo", "--noheader", "--format=%T")
            if state == "idle":
                return ""
            time.sleep(0.2)
        return f"the node is {state or 'unknown'} after a minute: {self._logs()}"

    def ask(self, *command):
        """The text that a command of Slurm prints."""
        return subprocess.run(command, env=self.env(), capture_output=True, text=True, timeout=60).stdout.strip()

    def env(self):
        return {**os.environ, "SLURM_CONF": self.conf}

    def stop(self):
        """Ends every job and every daemon that it started."""
        if len(self.daemons) == 3:
            self.ask("scancel", "--signal=KILL", "--full", "--user", getpass.getuser())
            self.ask("scancel", "--user", getpass.getuser())
            end = time.monotonic() + 30
            while self.ask("squeue", "--noheader") and time.monotonic() < end:
                time.sleep(0.2)
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _daemon(self, program, *arguments):
        with open(f"{self.folder}/{program}.out", "wb") as out:
            self.daemons.append(subprocess.Popen([program, *arguments], env=self.env(), stdin=subprocess.DEVNULL, stdout=out,
                                                 stderr=out, cwd=self.folder))

    def _logs(self):
        """The last errors of each daemon."""
        lines = []
        for daemon in self.daemons:
            with open(f"{self.folder}/{daemon.args[0]}.out", encoding="utf-8", errors="replace") as file:
                lines += [line.strip() for line in file if re.search(r"error|fatal", line, re.I)][-3:]
        return "; ".join(lines)


def _free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Slurm(campaign.Campaign):
    page = campaign.Page("slurm")

    @classmethod
    def setUpClass(cls):
        os.environ["PATH"] += ":/usr/sbin"
        campaign.need("munged", "slurmctld", "slurmd", "sbatch")
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.stop)
        trouble = cls.cluster.start()
        if trouble:
            raise unittest.SkipTest("Slurm's daemons do not start here: " + trouble)

    def setUp(self):
        super().setUp()
        self.env["SLURM_CONF"] = self.cluster.conf

    def command(self, title):
        return self.page.command(title, LEDGER=self.ledger, CAMPAIGN=CAMPAIGN, TASKS="0-3", THREADS=1)

    def submit(self):
        """The array's number."""
        code, out = self.run_script(self.command("start"))
        self.assertEqual(code, 0, self.said())
        return re.search(r"array (\d+)", out)[1]

    def tasks(self, job):
        """State and exit code of each task of an array."""
        return re.findall(r"JobState=(\w+).*?ExitCode=(\S+)", self.cluster.ask("scontrol", "show", "job", job), re.S)

    def wait_for_all(self):
        self.wait_for(lambda: not self.cluster.ask("squeue", "--noheader"), "end of all jobs", 300)

    def task_of(self, pid):
        """The task of an array that a worker is, as JOB_TASK."""
        with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
            env = dict(line.split("=", 1) for line in file.read().split("\0") if "=" in line)
        return f"{env['SLURM_ARRAY_JOB_ID']}_{env['SLURM_ARRAY_TASK_ID']}"

    def end_a_worker(self, *how):
        """Lets Slurm end the task of a worker that has a range. Whether the worker then gave the range back."""
        pid = self.wait_for(self.stop_a_worker, "worker that has a range")
        self.cluster.ask("scancel", *how, self.task_of(pid))
        self.wait_for(lambda: pid not in self.workers(), "end of a worker that was cancelled")
        return self.range_of(pid) is None

    def test_the_other_tasks_do_what_killed_tasks_had(self):
        job = self.submit()
        self.wait_for(lambda: len(self.workers()) == 4, "four workers")
        self.kill_a_worker()
        self.kill_a_worker()
        self.assertFalse(self.end_a_worker("--signal=KILL", "--batch"))
        self.wait_for_all()
        self.assert_lost(3)
        self.assert_complete()
        # Killed, findings in its own ranges, or none: Slurm did not start any of them again.
        ends = self.tasks(job)
        self.assertEqual(ends.count(("FAILED", "0:9")), 3, ends)
        code, out = self.run_script(self.command("verdict"))
        self.assertEqual(code, FINDINGS)
        self.assertEqual((self.folder / "verdict.txt").read_text(), out)

    def test_a_task_that_is_cancelled_gives_its_range_back(self):
        job = self.submit()
        self.assertTrue(self.end_a_worker())
        self.wait_for_all()
        self.assertIn("CANCELLED", [state for state, _ in self.tasks(job)])
        self.assert_complete()

    def test_the_same_command_goes_on_after_all_tasks_died(self):
        self.submit()
        self.kill_a_worker()
        self.kill_a_worker()
        self.cluster.ask("scancel", "--user", getpass.getuser())
        self.wait_for_all()
        self.assert_incomplete()
        self.submit()
        self.wait_for_all()
        self.assert_lost(2)
        self.assert_complete()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: exit(1))  # ctest's time is over: the daemons end, too
    campaign.main()
