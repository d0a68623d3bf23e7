"""Laws of campaigns that a Kubernetes Job starts. The test plays the Job: no cluster is here. Usage: kubernetes_test.py PROGRAM."""

import copy
import re
import subprocess
import time
import unittest

import yaml

import campaign
from campaign import CAMPAIGN, PAGES

TYPES = {"string": str, "integer": int, "list": list, "quantity": str}
HEAD = {"apiVersion", "kind", "metadata.name"}
VERSIONS = {"PersistentVolumeClaim": "v1", "Job": "batch/v1", "Pod": "v1"}


def manifests(name):
    return list(yaml.safe_load_all((PAGES / name).read_text(encoding="utf-8")))


def table():
    """Field: (type, the first stable version), as the page documents them."""
    rows = re.findall(r"^\| `([\w.]+)` \| (\w+) \| (before 1\.21|1\.\d+) \|", campaign.Page("kubernetes").text, re.M)
    return {field: (kind, since) for field, kind, since in rows}


def fields(value, path=""):
    """(path, value) of every leaf and every list; a list's items have its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from fields(inner, f"{path}.{key}".lstrip("."))
        return
    yield path, value
    for item in value if isinstance(value, list) else ():
        if isinstance(item, (dict, list)):
            yield from fields(item, path)


def wrong_fields(manifest, known):
    """The fields that are not as the table says."""
    kind = manifest.get("kind")
    if VERSIONS.get(kind) != manifest.get("apiVersion"):
        yield f"{kind} of {manifest.get('apiVersion')}"
    for path, value in fields(manifest):
        if path in HEAD:
            continue
        # A pod's fields are those of a Job's template.
        row = known.get(f"Job.spec.template.{path}" if kind == "Pod" else f"{kind}.{path}")
        if row is None:
            yield f"{path} is not in the table"
        elif not isinstance(value, TYPES[row[0]]) or isinstance(value, bool):
            yield f"{path} is {value!r}, no {row[0]}"
        elif row[0] == "quantity" and not re.fullmatch(r"\d+(m|[KMGT]i?)?", value):
            yield f"{path} is {value!r}, no quantity"
        elif path.endswith("command") and not all(isinstance(word, str) for word in value):
            yield f"{path} has words that are no strings"


def wrong_job(claim, job):
    """The rules that bind fields to each other."""
    spec = job["spec"]
    pod = spec["template"]["spec"]
    if "ReadWriteMany" not in claim["spec"]["accessModes"]:
        yield "one node alone may write"
    if spec.get("completionMode") != "Indexed" and "backoffLimitPerIndex" in spec:
        yield "backoffLimitPerIndex without indexes"
    if pod["restartPolicy"] != "Never":
        yield "podFailurePolicy with containers that start again"
    if spec["parallelism"] > spec["completions"]:
        yield "more pods than indexes"
    volumes = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"]}
    container, = pod["containers"]
    mounts = {mount["mountPath"]: volumes.get(mount["name"]) for mount in container["volumeMounts"]}
    ledger = option(container["command"], "--ledger")
    if mounts.get(ledger.rpartition("/")[0]) != claim["metadata"]["name"]:
        yield f"{ledger} is on no volume"
    if option(container["command"], "--threads") != container["resources"]["requests"]["cpu"]:
        yield "other threads than processors"


def option(command, name):
    return command[command.index(name) + 1]


class Manifest(unittest.TestCase):
    def setUp(self):
        self.claim, self.job = manifests("job.yaml")
        self.pod, = manifests("verdict.yaml")

    def findings(self, claim=None, job=None):
        claim, job = claim or self.claim, job or self.job
        found = [text for manifest in (claim, job, self.pod) for text in wrong_fields(manifest, table())]
        return found or list(wrong_job(claim, job))

    def test_every_field_is_as_the_page_says(self):
        self.assertEqual(self.findings(), [])

    def test_the_page_has_no_field_that_the_manifest_lacks(self):
        used = {f"{manifest['kind']}.{path}" for manifest in (self.claim, self.job) for path, _ in fields(manifest)}
        self.assertLessEqual(set(table()), used)

    def test_versions(self):
        known = table()
        self.assertEqual(known["Job.spec.backoffLimitPerIndex"], ("integer", "1.33"))
        self.assertEqual(known["Job.spec.completionMode"], ("string", "1.24"))
        self.assertEqual(known["Job.spec.podFailurePolicy.rules"], ("list", "1.31"))

    def test_slips_are_seen(self):
        def of_spec(name, value):
            return lambda claim, job: job["spec"].update({name: value})

        def of_pod(name, value):
            return lambda claim, job: job["spec"]["template"]["spec"].update({name: value})

        def of_container(name, value):
            return lambda claim, job: job["spec"]["template"]["spec"]["containers"][0].update({name: value})

        command = self.job["spec"]["template"]["spec"]["containers"][0]["command"]
        for slip in (of_spec("completionmode", "Indexed"), of_spec("completions", "16"), of_spec("parallelism", 17),
                     of_spec("completionMode", "NonIndexed"), of_pod("restartPolicy", "OnFailure"), of_pod("volumes", []),
                     of_container("command", [*command, 8]), of_container("volumeMounts", []),
                     of_container("resources", {"requests": {"cpu": "2"}}),
                     lambda claim, job: job.update({"apiVersion": "batch/v1beta1"}),
                     lambda claim, job: claim["spec"].update({"accessModes": ["ReadWriteOnce"]}),
                     lambda claim, job: claim["spec"]["resources"]["requests"].update({"storage": "10 GB"})):
            claim, job = copy.deepcopy(self.claim), copy.deepcopy(self.job)
            slip(claim, job)
            self.assertNotEqual(self.findings(claim, job), [])

    def test_the_verdict_is_that_of_the_jobs_ledger(self):
        job, = self.job["spec"]["template"]["spec"]["containers"]
        verdict, = self.pod["spec"]["containers"]
        self.assertIn(option(job["command"], "--ledger"), verdict["command"])
        self.assertEqual(job["image"], verdict["image"])
        self.assertEqual(job["volumeMounts"], verdict["volumeMounts"])
        self.assertEqual(self.job["spec"]["template"]["spec"]["volumes"], self.pod["spec"]["volumes"])


class Index:
    """An index of a Job: a pod, and after its failure what the Job's policy says."""

    def __init__(self, start, spec):
        self.start, self.spec, self.failures, self.state = start, spec, 0, "running"
        self.pod = start()

    def look(self):
        code = self.pod.poll()
        if self.state != "running" or code is None:
            return
        if code == 0:
            self.state = "succeeded"
            return
        self.failures += 1
        if self._fails(128 - code if code < 0 else code) or self.failures > self.spec["backoffLimitPerIndex"]:
            self.state = "failed"
        else:
            self.pod = self.start()

    def _fails(self, code):
        return any(rule["action"] == "FailIndex" and rule["onExitCodes"]["operator"] == "In" and
                   code in rule["onExitCodes"]["values"] for rule in self.spec["podFailurePolicy"]["rules"] if "onExitCodes" in rule)


class Job(campaign.Campaign):
    def small(self, command):
        """A container's command for the test's ledger and campaign: the options that it has get other values."""
        given = [*CAMPAIGN.split(), "--ledger", str(self.ledger), "--threads", "1", "--seconds", "600"]
        values = dict(zip(given[::2], given[1::2]))
        small = [values.pop(before, word) for before, word in zip([""] + command, command)]
        return small + [word for pair in values.items() for word in pair]

    def start_pod(self, command):
        with open(self.folder / "stderr", "ab") as err:
            return subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)

    def run_job(self, spec, deaths):
        """Plays the Job, and kills so many workers. The indexes at its end."""
        container, = spec["template"]["spec"]["containers"]
        command = self.small(container["command"])
        indexes = [Index(lambda: self.start_pod(command), spec) for _ in range(min(spec["completions"], 3))]
        for _ in range(deaths):
            self.kill_a_worker()
        end = time.monotonic() + 300
        while any(index.state == "running" for index in indexes) and time.monotonic() < end:
            for index in indexes:
                index.look()
            time.sleep(0.05)
        return indexes

    def test_killed_workers_start_again_and_the_verdict_is_the_campaigns(self):
        _, job = manifests("job.yaml")
        pod, = manifests("verdict.yaml")
        indexes = self.run_job(job["spec"], 2)
        self.assertLessEqual({index.state for index in indexes}, {"succeeded", "failed"}, self.said())
        self.assertGreaterEqual(sum(index.failures for index in indexes), 2)
        self.assertTrue(all(index.failures <= 3 for index in indexes))
        self.assert_lost(2)
        self.assert_complete()
        container, = pod["spec"]["containers"]
        command = [str(self.ledger) if word == "/ledgers/night" else word for word in container["command"]]
        self.assertEqual(self.start_pod(command).wait(300), campaign.FINDINGS)


if __name__ == "__main__":
    campaign.main()
