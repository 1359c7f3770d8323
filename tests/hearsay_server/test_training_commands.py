"""`hearsay training`: what an operator plans, reads, registers, follows, tries and takes away."""

import csv
import json
import math
import tomllib
from pathlib import Path

import numpy as np
import pytest
from command import hearsay
from serving import own_name
from trained import vector
from training_files import MODEL, TRAINING, declared, written

from hearsay.federated import models
from hearsay.federated.parsing import parse
from hearsay.sending.transport import open_calls
from hearsay.v1 import trainer_pb2
from hearsay_server.trainings.explain import people_for_full_rounds
from support import wait_until

HEAD = TRAINING[: TRAINING.index("[training.central]")]
RECORDS = """
[training.aggregation]
rule = "median"
[training.record_level]
noise_multiplier = 1
max_grad_norm = 0.5
"""
PLAN = ("training", "plan", "--people", 400, "--dimension", 9, "--updates-per-round", 20)


def test_a_plan_keeps_its_budget_and_can_be_copied_into_a_file(tmp_path: Path) -> None:
    (mechanism, _) = json.loads(hearsay(*PLAN, "--epsilon", 3, "--json").stdout)["central"]
    assert mechanism["epsilon"] == pytest.approx(3, rel=1e-4)
    assert mechanism["epsilon"] <= 3 * (1 + 1e-9)
    printed = hearsay(*PLAN, "--epsilon", 3).stdout
    lines = printed[printed.index("participations") : printed.index("Noise of the devices")]
    copied = tomllib.loads(lines)
    assert "each takes part 10 times at most, 10 rounds apart." in " ".join(printed.split())
    table = HEAD.replace("participations = 4\nseparation = 25\n", "")
    table = table.replace("max_update_norm", lines.partition("[")[0] + "max_update_norm")
    training = declared(tmp_path, table + lines[lines.index("[") :]).training
    assert (training.participations, training.separation) == (10, 10)
    assert training.rho is not None
    assert float(training.rho) == pytest.approx(mechanism["rho"], rel=1e-6)
    assert copied["training"]["central"]["noise_multiplier"] == mechanism["noise_multiplier"]
    assert people_for_full_rounds(training) == 200  # half of 400 are there
    needed = f"takes {mechanism['updates_needed'][0]:,} updates in a round."
    assert needed in " ".join(printed.split())
    noise = mechanism["noise_round_1"] * 20  # of a sum of updates
    assert mechanism["updates_needed"][0] == math.ceil(noise / 0.1)  # a third of 0.3


@pytest.mark.parametrize("protection", ["two_servers", "local_noise", "record_level"])
def test_a_plan_has_lines_to_copy_for_each_protection(protection: str, tmp_path: Path) -> None:
    printed = hearsay(*PLAN, "--epsilon", 3).stdout
    lines = printed[: printed.index("\n\n", printed.index(f"[training.{protection}]"))]
    table = HEAD.replace("participations = 4\nseparation = 25\n", "")
    pace, _, noise = lines[lines.rindex("participations") :].partition("[")
    noise = noise.replace('"..."', f'"{"5f" * 32}"')  # of a helper
    training = declared(
        tmp_path, table.replace("[training.local]", f"{pace}[training.local]") + f"[{noise}"
    ).training
    assert training.protection.kind == protection
    assert training.participations == 10


def test_a_plan_can_be_drawn_and_tells_what_two_servers_cost(tmp_path: Path) -> None:
    plot = tmp_path / "noise.png"
    done = hearsay(*PLAN, "--rho", 0.5, "--json", "--plot", plot)
    assert "drawn into" in done.stderr
    assert plot.read_bytes().startswith(b"\x89PNG")
    split = json.loads(done.stdout)["two_servers"]
    # 20 devices keep rho / 10 in each round: 9 parameters, filled up to 16, in the sum of 20.
    assert split["noise_round_1"] == pytest.approx(math.sqrt(9 / (2 * 0.05)) / 20)
    assert split["noise_all_rounds"] == pytest.approx(10 * split["noise_round_1"])
    refused = hearsay(*PLAN, "--rho", 0.5, "--plot", tmp_path / "noise.txt")
    assert "must name a file that ends in" in refused.stderr


def test_a_plan_by_rho_says_what_it_costs_to_need_nobody(tmp_path: Path) -> None:
    planned = json.loads(hearsay(*PLAN, "--rho", 0.5, "--json").stdout)
    assert all(each["rho"] <= 0.5 for each in planned["central"])
    assert planned["central"][0]["mechanism"] == "toeplitz"
    needed = [each["updates_needed"] for each in planned["local"]]
    assert needed == sorted(needed, reverse=True)
    large = hearsay(*PLAN, "--rho", 0.5, "--dimension", 1_000_000).stdout
    assert "Not for models of more than 65,536 parameters" in large


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give one of --epsilon and --rho"),
        (("--epsilon", 1, "--rho", 1), "give one of --epsilon and --rho"),
        (("--epsilon", -1), "epsilon must be finite and > 0, got -1.0"),
        (("--rho", "inf"), "--rho must be finite and > 0, got inf"),
        (("--rho", 1, "--rounds", 0), "--rounds must be 1 to 65,536, got 0"),
        (("--rho", 1, "--available", 0), "--available must be a share > 0 and at most 1, got 0.0"),
        (("--rho", 1, "--available", 0.01), "must be 1 to the 4 of 400 people who are there"),
        (("--rho", 1, "--delta", 1), "--delta must be > 0 and < 1, got 1.0"),
        (("--rho", 1, "--norm", 2), "--norm must be a share > 0 and at most 1, got 2.0"),
    ],
)
def test_what_cannot_be_planned_is_told_in_one_line(
    options: tuple[object, ...], message: str
) -> None:
    refused = hearsay(*PLAN, *options)
    assert refused.returncode == 1
    assert message in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("protection", "told"),
    [
        (TRAINING, "Against a dishonest server, or one that was broken into, a person has no prot"),
        (HEAD + "[training.local_noise]\nepsilon = 2", "Epsilon 2 with each update, 8 with all 4."),
        (HEAD + RECORDS, "There is no promise about the person."),
        (
            HEAD.replace("separation = 25", "separation = 1") + RECORDS,
            "It takes part in 4 of 100 rounds at most. The",
        ),
    ],
    ids=["central", "local_noise", "record_level", "not kept apart"],
)
def test_a_training_is_explained_in_plain_words(protection: str, told: str, tmp_path: Path) -> None:
    file = written(tmp_path, protection)
    printed = hearsay("training", "explain", file)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert max(map(len, printed.stdout.splitlines())) <= 80
    assert told in " ".join(printed.stdout.split())
    document = json.loads(hearsay("training", "explain", file, "--json").stdout)
    assert document["revision"] == declared(tmp_path, protection).training.revision.hex()


def test_a_training_is_registered_followed_exported_closed_and_deleted(
    address: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name, target = own_name(request), ("--target", address)
    sizes = "updates_per_round = 3\nmin_updates = 2"
    toml = (HEAD + RECORDS).replace("updates_per_round = 20\nmin_updates = 10", sizes)
    file = written(tmp_path, toml.replace('"digits"', f'"{name}"'))
    created = hearsay("training", "create", file, *target)
    assert created.stdout.startswith(f"{name} is registered, revision "), created.stderr
    assert "All 100 rounds are over after 4 days and 4 hours at most" in created.stdout
    assert hearsay("training", "create", file, *target).stdout == created.stdout
    _send_a_round(address, name)
    shown = hearsay("training", "show", name, *target)
    assert shown.returncode == 0
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "aggregated" in shown.stdout
    assert "running, round 2 of 100: 1 made a model, 0 dropped" in shown.stdout
    assert "Devices have asked this server " in shown.stdout
    assert "Updates that it refused meanwhile: 1 other model." in shown.stdout
    document = json.loads(hearsay("training", "show", name, "--json", *target).stdout)
    assert document["visits"]["refused"] == {"OTHER_MODEL": 1}
    assert document["history"][0]["updates"] == 3
    assert document["declaration"]["protection"] == "record_level"
    listed = json.loads(hearsay("training", "list", "--json", *target).stdout)
    assert name in [each["training"] for each in listed]
    out, history = tmp_path / "model.safetensors", tmp_path / "rounds.csv"
    exported = hearsay("training", "export", name, "--out", out, "--history", history, *target)
    assert exported.returncode == 0, exported.stderr
    model = models.to_vector(models.read(out.read_bytes()))
    median = np.median([vector(number, 9) for number in range(3)], axis=0)
    before = models.to_vector(models.read(MODEL))
    assert np.allclose(model, before + median, atol=1e-6)
    first = tmp_path / "first.safetensors"
    hearsay("training", "export", name, "--out", first, "--round", 0, *target)
    assert first.read_bytes() == MODEL
    rows = list(csv.DictReader(history.read_text().splitlines()))
    assert [row["state"] for row in rows] == ["aggregated", "open"]
    assert rows[0]["rho"] == ""
    again = hearsay("training", "export", name, "--out", out, *target)
    assert again.stderr == f"hearsay: {out} exists: give another name, or remove it first\n"
    none = hearsay("training", "export", name, "--out", tmp_path / "x", "--round", 7, *target)
    assert f"round 7 of '{name}' made no model" in none.stderr
    closed = hearsay("training", "close", name, "--yes", *target)
    assert closed.stdout == f"{name} is closed after 1 rounds that made a model\n"
    watched = hearsay("training", "show", name, "--watch", *target)  # ends at once
    assert "closed, round 2 of 100" in watched.stdout
    gone = hearsay("training", "delete", name, "--yes", *target)
    assert gone.stdout == f"{name} is deleted, with 2 rounds of 3 updates\n"
    missing = hearsay("training", "show", name, *target)
    assert missing.stderr == f"hearsay: there is no training '{name}' here\n"


def _send_a_round(address: str, name: str) -> None:
    """Send the updates of three devices, wait for the next round, and send it one of no use."""
    calls = open_calls(address)
    asked = trainer_pb2.GetTrainingRequest(training=name)
    frozen = calls.call("Trainer/GetTraining", asked, trainer_pb2.GetTrainingResponse, 20)
    training = parse(frozen.training)

    def now() -> trainer_pb2.GetRoundResponse:
        request = trainer_pb2.GetRoundRequest(training=name)
        return calls.call("Trainer/GetRound", request, trainer_pb2.GetRoundResponse, 20)

    first = now()
    for number in range(3):
        payload = vector(number, training.dimension).tobytes()
        update = trainer_pb2.SubmitUpdateRequest(
            id=number.to_bytes(16, "little"),
            training=name,
            revision=training.revision,
            round=first.round,
            model=first.model,
            size=len(payload),
            data=payload,
        )
        calls.call("Trainer/SubmitUpdate", update, trainer_pb2.SubmitUpdateResponse, 20)
    wait_until(lambda: now().round == first.round + 1)
    update.round, update.id = first.round + 1, bytes(range(16))  # of a model that is old by now
    calls.call("Trainer/SubmitUpdate", update, trainer_pb2.SubmitUpdateResponse, 20)
    calls.close()
