"""A kind whose handler does what a test tells it to."""

import ctypes
import os
import sys
import time
import uuid
from typing import Any

from django.db import models, transaction

from jobs.engine.execution import Run
from jobs.engine.lifecycle import Job
from jobs.engine.retry import Failed, Permanent, RetryAfter, Snooze
from jobs.engine.row import Status


class Effect(models.Model):
    """What a job did to the world: one row for each time that it was done."""

    job = models.UUIDField(db_index=True)
    attempt = models.PositiveSmallIntegerField()
    process = models.PositiveIntegerField(default=0)


class Probe(Job):
    kind = "probe"
    progress_fields = {"lines": None}

    script = models.CharField(max_length=40, default="effect")
    argument = models.CharField(max_length=200, blank=True, default="")
    lines = models.IntegerField(null=True, blank=True)

    class Meta(Job.Meta):
        pass

    def perform(self, run: Run) -> Any:
        return getattr(self, f"do_{self.script}")(run)

    def do_nothing(self, run: Run) -> None:
        pass

    def do_effect(self, run: Run) -> None:
        Effect.objects.create(job=self.pk, attempt=run.attempt, process=os.getpid())

    def do_fail(self, run: Run) -> None:
        raise ValueError(self.argument or "no luck")

    def do_fail_plainly(self, run: Run) -> None:
        raise Failed(self.argument)

    def do_fail_once(self, run: Run) -> None:
        if run.attempt == 1:
            raise Failed("the first time always fails")
        self.do_effect(run)

    def do_fail_for_good(self, run: Run) -> None:
        raise Permanent("it will never work")

    def do_come_back(self, run: Run) -> None:
        raise RetryAfter(float(self.argument))

    def do_snooze(self, run: Run) -> None:
        raise Snooze(float(self.argument))

    def do_exit(self, run: Run) -> None:
        sys.exit(3)

    def do_die(self, run: Run) -> None:
        os._exit(9)

    def do_wait_politely(self, run: Run) -> None:
        """Until it is stopped."""
        self.do_effect(run)
        while True:
            run.check()
            time.sleep(0.02)

    def do_sleep_without_checks(self, run: Run) -> None:
        self.do_effect(run)
        for _ in range(1000):
            time.sleep(0.02)

    def do_wait_deafly(self, run: Run) -> None:
        """Until the file `argument` is there, whatever is raised."""
        self.do_effect(run)
        while not os.path.exists(self.argument):
            try:
                time.sleep(0.02)
            except BaseException:
                continue

    def do_wait_for_file(self, run: Run) -> None:
        self.do_effect(run)
        while not os.path.exists(self.argument):
            run.check()
            time.sleep(0.02)

    def do_hold_the_gil(self, run: Run) -> None:
        self.do_effect(run)
        ctypes.PyDLL(None).usleep(int(float(self.argument) * 1_000_000))

    def do_program(self, run: Run) -> None:
        self.do_effect(run)
        program = run.subprocess(["sh", "-c", f"sleep 300 & echo $! > {self.argument}; wait"])
        program.wait()
        run.check()

    def do_report_in_a_transaction(self, run: Run) -> None:
        """Hold a transaction that writes for `argument` seconds, reporting all the time."""
        end = time.monotonic() + float(self.argument)
        with transaction.atomic():
            self.do_effect(run)
            while time.monotonic() < end:
                run.report(step=f"{end - time.monotonic():.1f} s to go")
                time.sleep(0.02)

    def do_log(self, run: Run) -> None:
        run.log("first line")
        run.log(f"dirty \x00 \x1b[31m {self.argument}")

    def do_log_too_much(self, run: Run) -> None:
        for number in range(300):
            run.log(f"{number} " + "x" * 5_000)

    def do_report(self, run: Run) -> None:
        for done in range(1, 11):
            run.report(done=done, total=10, step=f"step {done}", lines=done * 100)
            time.sleep(0.05)
        self.do_effect(run)


class Ledger(Job):
    """A kind whose effects and completion are one transaction."""

    kind = "ledger"
    atomic = True
    defaults = {"max_running_seconds": 5}

    argument = models.CharField(max_length=200, blank=True, default="")

    class Meta(Job.Meta):
        pass

    def perform(self, run: Run) -> None:
        run.report(50, step="almost done")
        run.log("the last words")
        Effect.objects.create(job=self.pk, attempt=run.attempt)
        if self.argument == "fail":
            raise ValueError("after the effect")
        if self.argument == "lose":
            # As when the row was rescued and claimed by somebody else meanwhile.
            Ledger.objects.filter(pk=self.pk).update(claim=uuid.uuid4())


class Chain(Job):
    """A kind with follow-up work: it enqueues as many probes as `links` says."""

    kind = "chain"

    links = models.PositiveSmallIntegerField(default=1)
    done = models.CharField(max_length=20, blank=True, default="")

    class Meta(Job.Meta):
        pass

    def perform(self, run: Run) -> int:
        return self.links

    def on_completed(self, result: int) -> dict[str, Any]:
        if result < 0:
            raise ValueError("follow-up work failed")
        Probe.objects.enqueue_many({"script": "effect"} for _ in range(result))
        return {"done": "chained"}


class Letter(Job):
    """A kind whose text does not outlive its end; it has no other follow-up work."""

    kind = "letter"

    text = models.TextField()
    ended_as = models.CharField(max_length=9, blank=True, default="")

    class Meta(Job.Meta):
        pass

    def perform(self, run: Run) -> None:
        if self.text == "bad":
            raise Permanent("a bad letter")

    def at_end(self, status: Status) -> dict[str, Any]:
        return {"text": "", "ended_as": status.value}
