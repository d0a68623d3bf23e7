"""Laws of campaigns that GNU parallel starts. Usage: parallel_test.py PROGRAM."""

import os

import campaign
from campaign import BAD_INPUT, CAMPAIGN

# In the place of ssh: each name is this machine.
SSH = """#!/bin/bash
while [[ $1 != -- ]]; do shift; done
exec bash -c "${*:2}"
"""


class Parallel(campaign.Campaign):
    page = campaign.Page("parallel")

    @classmethod
    def setUpClass(cls):
        campaign.need("parallel")

    def setUp(self):
        super().setUp()
        ssh = self.folder / "bin" / "ssh"
        ssh.write_text(SSH)
        ssh.chmod(0o755)
        (self.folder / "hosts").write_text("node1\nme@node2\n")
        self.env |= {"PARALLEL_SSH": str(ssh), "PARALLEL_HOME": str(self.folder), "HOME": str(self.folder)}

    def command(self, title, **settings):
        return self.page.command(title, **{"LEDGER": self.ledger, "CAMPAIGN": CAMPAIGN, "HOSTS": "hosts", "THREADS": 1,
                                           "WORKERS": 4, **settings})

    def ends(self):
        """(exit code, signal) of each worker, from the job log."""
        _, *lines = (self.folder / "workers.log").read_text().splitlines()
        return [tuple(map(int, line.split("\t")[6:8])) for line in lines]

    def test_the_others_do_what_killed_workers_had(self):
        running = self.start(self.command("machine"))
        self.kill_a_worker()
        self.kill_a_worker()
        self.end(running)
        self.assertEqual(len(self.ends()), 4, self.said())
        self.assertEqual(self.ends().count((0, 9)), 2, self.ends())
        self.assert_lost(2)
        self.assert_complete()
        code, _ = self.run_script(self.command("verdict"))
        self.assertEqual(code, campaign.FINDINGS)

    def test_the_same_command_goes_on_after_all_workers_died(self):
        command = self.command("hosts")
        running = self.start(command)
        self.kill_a_worker()
        self.kill_a_worker()
        self.assertNotEqual(self.end(running), 0)
        self.assert_incomplete()
        code, _ = self.run_script(self.command("verdict"))
        self.assertEqual(code, BAD_INPUT)
        self.run_script(command)
        self.assert_lost(2)
        self.assert_complete()

    def test_a_result_that_is_gone_is_missed(self):
        self.run_script(self.command("machine"))
        self.assert_complete()
        joined, *ranges = [self.ledger / "seg" / "0.json", *self.ledger.glob("seg/0/done/*.json")]
        os.remove(joined if joined.exists() else ranges[0])
        self.assert_incomplete()


if __name__ == "__main__":
    campaign.main()
