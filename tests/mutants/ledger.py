"""A ledger, the folder in which the processes of a campaign meet. Its form and its rules are docs/campaigns.md."""

import contextlib
import json
import os
import pathlib
import random
import socket
import threading
import time

SCHEMA = "shadowgraph.ledger/1"
SEGMENT = 256  # ranges
NOT_COMPARED = ("corpus",)  # of run.json


class Refused(Exception):
    """The folder is no ledger of this campaign."""


def put(path, text):
    """False where there is a file already: one of several writers succeeds, and no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_name(f"{path.name}.{os.getpid()}.{random.getrandbits(64):x}")
    try:
        with whole.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(whole, path)
    except FileExistsError:
        return False
    finally:
        whole.unlink(missing_ok=True)
    return True


class Ledger:
    def __init__(self, folder, run):
        """Opens the ledger in that folder, or begins it there. run: what run.json has, without its schema."""
        self.folder, self.ranges = pathlib.Path(folder), -(-run["cases"] // run["range"])
        self.stale_seconds = run["stale_seconds"]
        self.worker = f"{socket.gethostname()} {os.getpid()} {random.getrandbits(64):016x}"
        mine, path = {"schema": SCHEMA, **run}, self.folder / "run.json"
        others = [p.name for p in self.folder.glob("*") if not p.name.startswith(("run.json", "corpus"))]
        if others and not path.exists():
            raise Refused(f"{folder} is no ledger: it has no run.json, but {others[0]}")
        if put(path, json.dumps(mine, indent=2) + "\n"):
            return
        try:
            there = json.loads(path.read_text())
            differences = [
                f"{key}: {json.dumps(a)}, and the ledger has {json.dumps(b)}"
                for mine, there in ((mine, there), (mine["options"], there.get("options", {})))
                for key in sorted({*mine, *there} - {"options", *NOT_COMPARED})
                if (a := mine.get(key)) != (b := there.get(key))
            ]
        except (ValueError, TypeError, AttributeError) as error:
            raise Refused(f"{path} is no run.json of a ledger: {error}") from error
        if differences:
            raise Refused("\n".join([f"{folder} is the ledger of another campaign", *differences]))

    def segment(self, number):
        return self.folder / "seg" / str(number // SEGMENT)

    def claim_of(self, number):
        return self.segment(number) / "claim" / str(number)

    def undone(self):
        """Ranges without a result; first those of a segment that is drawn by lot, so that workers seldom meet."""
        segments = range(0, self.ranges, SEGMENT)
        at = random.randrange(len(segments)) if segments else 0
        for first in [*segments[at:], *segments[:at]]:
            if self.segment(first).with_suffix(".json").exists():
                continue
            with contextlib.suppress(FileNotFoundError):
                done = {path.name for path in (self.segment(first) / "done").iterdir()}
                yield from (n for n in range(first, min(first + SEGMENT, self.ranges)) if f"{n}.json" not in done)
                continue
            yield from range(first, min(first + SEGMENT, self.ranges))

    def now(self):
        """By the file server's clock."""
        mine = self.folder / f".now.{self.worker}"
        mine.touch()
        now = mine.stat().st_mtime
        mine.unlink()
        return now

    def is_lost(self, claim):
        return self.now() - claim.stat().st_mtime > self.stale_seconds

    def take_from_lost(self, number):
        """Frees a range whose worker did not touch its claim for too long."""
        claim = self.claim_of(number)
        away = claim.with_name(f"{number}.lost.{self.worker}")
        with contextlib.suppress(FileNotFoundError):  # it was given back, or another one took it
            if not self.is_lost(claim):
                return
            claim.rename(away)
            if self.is_lost(away):
                lost = self.folder / "lost" / str(number)
                lost.parent.mkdir(exist_ok=True)
                with lost.open("a") as file:
                    file.write(away.read_text().strip() + "\n")
            else:  # another one took it and claimed it in the meantime
                with contextlib.suppress(FileExistsError):
                    os.link(away, claim)
            away.unlink()

    def claim(self, number):
        """Whether the range is now this worker's."""
        claim = self.claim_of(number)
        claim.parent.mkdir(parents=True, exist_ok=True)
        self.take_from_lost(number)
        try:
            file = os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(file, "w") as open_claim:
            open_claim.write(json.dumps({"worker": self.worker, "at": number, "alone": False}) + "\n")
        return True

    def is_mine(self, number):
        with contextlib.suppress(FileNotFoundError, ValueError):
            return json.loads(self.claim_of(number).read_text()).get("worker") == self.worker
        return False

    @contextlib.contextmanager
    def held(self, number):
        """Touches the claim as long as its range is worked on, and takes it away then, whatever came of it."""
        end = threading.Event()

        def beat():
            while not end.wait(self.stale_seconds / 12):
                with contextlib.suppress(OSError):
                    if self.is_mine(number):
                        os.utime(self.claim_of(number))

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
            if self.is_mine(number):
                self.claim_of(number).unlink(missing_ok=True)

    def done_of(self, number):
        return self.segment(number) / "done" / f"{number}.json"

    def claims(self, fits):
        """Ranges that fit, one after the other, until all of these are done. Each is given back when the next is asked
        for, or at close()."""
        while waiting := [number for number in self.undone() if fits(number)]:
            ours = next((number for number in waiting if self.claim(number)), None)
            if ours is None:
                time.sleep(self.stale_seconds / 12)  # their workers may be lost
                continue
            with self.held(ours):
                if not self.done_of(ours).exists():  # since it was listed
                    yield ours

    def publish(self, number, text):
        """False if there is another result already: that one is kept."""
        if self.segment(number).with_suffix(".json").exists() or put(self.done_of(number), text):
            return True
        kept = self.done_of(number).read_text()
        if kept != text:
            put(self.folder / f"differs/{number}/kept.json", kept)
            put(self.folder / f"differs/{number}/other.json", text)
        return kept == text
