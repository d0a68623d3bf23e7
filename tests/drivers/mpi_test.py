"""Laws of campaigns that Open MPI starts. Usage: mpi_test.py SHADOWGRAPH_MPI SHADOWGRAPH."""

import os
import pathlib
import signal

import campaign
from campaign import BAD_INPUT, CAMPAIGN, FINDINGS


def rank_of(pid):
    environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(int(entry.partition(b"=")[2]) for entry in environment if entry.startswith(b"OMPI_COMM_WORLD_RANK="))


class Mpi(campaign.Campaign):
    page = campaign.Page("mpi")

    @classmethod
    def setUpClass(cls):
        campaign.need("mpirun")

    def setUp(self):
        super().setUp()
        (self.folder / "hosts").write_text("localhost slots=4\n")
        self.env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def command(self, title, **settings):
        return self.page.command(
            title, **{"LEDGER": self.ledger, "CAMPAIGN": CAMPAIGN, "HOSTS": "hosts", "THREADS": 1, **settings})

    def done(self):
        """How many results the ledger has."""
        return len(list(self.ledger.glob("seg/*/done/*.json")))

    def kill_rank(self, rank):
        """Kills a rank while there are ranges in work: a worker has one at any time."""
        before = self.done()
        self.wait_for(lambda: self.done() > before, "result")
        os.kill({rank_of(pid): pid for pid in self.workers()}[rank], signal.SIGKILL)

    def test_nobody_dies_and_rank_0_prints_the_verdict(self):
        _, printed = self.run_script(self.command("start"))
        self.assert_complete()
        code, merged = self.run_script(self.command("verdict"))
        self.assertEqual(code, FINDINGS)
        self.assertEqual(printed.replace("\r", ""), merged)
        self.assertIn("K04: found", merged)

    def test_the_others_do_what_killed_workers_had(self):
        running = self.start(self.command("start"))
        self.kill_rank(2)
        self.kill_rank(3)
        self.end(running)
        self.assert_lost(2)
        self.assert_complete()
        self.assertIn("K04: found", (self.folder / "stdout").read_text())

    def test_the_same_command_goes_on_after_rank_0_died(self):
        running = self.start(self.command("start"))
        self.kill_rank(0)
        self.end(running)
        self.assertEqual(self.workers(), [])
        self.assertEqual(self.said().count("no answer of rank 0"), 3, self.said())
        code, _ = self.run_script(self.command("verdict"))
        self.assertEqual(code, BAD_INPUT)
        self.run_script(self.command("start"))
        self.assert_complete()

    def test_another_campaign_is_refused(self):
        self.run_script(self.command("start"))
        self.assert_complete()
        self.run_script(self.command("start", CAMPAIGN=CAMPAIGN.replace("--seed 7", "--seed 8")))
        self.assertIn("io.ledger", (self.folder / "stdout").read_text() + self.said())
        self.assert_complete()


if __name__ == "__main__":
    campaign.main()
