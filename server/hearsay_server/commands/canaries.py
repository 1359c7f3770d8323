"""`hearsay audit --canaries`: a survey played through by canaries, on a server of its own."""

import contextlib
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import hearsay.plans.plan
from hearsay.sending.transport import open_calls
from hearsay.v1 import admin_pb2
from hearsay_server import tabular
from hearsay_server.demo import canaries as collection
from hearsay_server.demo.devices import start
from hearsay_server.printing import Console, headed, say_json
from hearsay_server.surveys import survey as surveys
from ldp.errors import InvalidInput, needs


def audit(file: Path, canaries: int, confidence: float, as_json: bool) -> bool:
    """Audit the survey in a file by canaries, print it, and tell whether a claim is refuted."""
    if canaries < 1:
        raise InvalidInput(f"--canaries must be >= 1, got {canaries}")
    with needs("audit --canaries", "demo"):
        from hearsay_server.demo.play import server_process
    survey = surveys.from_file(file)
    plan = surveys.resolve(survey)
    parsed = hearsay.plans.plan.parse(plan)
    console = Console(stderr=True)
    columns = (TextColumn("canaries"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(start())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hearsay-")))
        address = stack.enter_context(server_process(folder)).address
        stack.callback(pool.terminate)
        with contextlib.closing(open_calls(address)) as calls:
            request = admin_pb2.CreateSurveyRequest(survey=survey)
            calls.call("Admin/CreateSurvey", request, admin_pb2.SurveyStatus, 30.0)
        progress = stack.enter_context(Progress(*columns, console=console, transient=True))
        task = progress.add_task("canaries", total=canaries * len(parsed.levels))
        found = collection.audit_collection(
            plan,
            parsed,
            address,
            pool,
            canaries,
            confidence,
            lambda more: progress.advance(task, more),
        )
    refuted = [each for each in found if each.result.violated]
    if as_json:
        documents = [
            {"level": each.level, "question": each.question, "violated": each.result.violated}
            | asdict(each.result)
            for each in found
        ]
        say_json(documents)
        return bool(refuted)
    table = Table("level", "reports", box=None)
    for heading in ("guesses", "right", "claims", "at least", "p-value", "verdict"):
        table.add_column(heading, justify="right")
    for each in found:
        result = each.result
        table.add_row(
            each.level,
            each.question or "whole record",
            f"{result.guesses:,}",
            f"{result.right:,}",
            f"{result.claimed:.4g}",
            f"{result.lower_bound:.4g}",
            f"{result.p_value:.2g}",
            headed("REFUTED", style="bold red") if result.violated else "kept",
        )
    tabular.show(table)
    Console().print(
        f"{canaries:,} canaries at each level, through a server; {len(refuted)} of {len(found)} "
        f"claims refuted, all bounds together at {confidence:.4g}",
        highlight=False,
    )
    asked = {each.question for each in found}
    if left_out := [name for name in parsed.questions if name not in asked]:
        Console().print(f"left out: {', '.join(left_out)}", highlight=False)
    return bool(refuted)
