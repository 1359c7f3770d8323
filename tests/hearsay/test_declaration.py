"""A training is read from its frozen bytes alone, and what cannot be is refused with its place."""

import hashlib
import math
from fractions import Fraction
from typing import Any

import pytest
from declared import declared, frozen, parsed
from hypothesis import given, settings
from hypothesis import strategies as st

from hearsay import InvalidInput
from hearsay.federated.declaration import CentralNoise, LocalNoise, RecordLevel
from hearsay.federated.parsing import parse
from hearsay.plans.plan import mechanism_message
from hearsay.plans.units import BILLION
from ldp import SphereCodebook
from ldp.planning import prefix_sums

RECORDS = {"record_level": {"noise_multiplier_millionths": 10**6, "max_grad_norm": 1.0}}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another name": ({"name": "Digits!"}, "name: expected a lower-case letter, then"),
    "a title with what cannot be seen": (
        {"title": "digits\u200b"},
        "title: 'digits\\u200b' contains U+200B, a format character",
    ),
    "code instead of an architecture": (
        {"architecture": "import os"},
        'architecture: expected lower-case letters, digits or "_", at most 64 in all, got',
    ),
    "half a hash": ({"initial": bytes(16)}, "initial: expected the 32 bytes of a SHA-256, got 16"),
    "a model that fills the memory": (
        {"dimension": 1 << 27},
        "dimension: expected 1 to 67,108,864, got 134,217,728",
    ),
    "too many rounds": ({"rounds": 65_537}, "rounds: expected 1 to 65,536, got 65,537"),
    "more updates needed than taken": (
        {"min_updates": 21},
        "min_updates: expected 1 to updates_per_round, which is 20, got 21",
    ),
    "participations that do not fit": (
        {"participations": 5},
        "participations: 5 of them, 25 rounds apart, need 101 rounds, and rounds is 100",
    ),
    "no norm": ({"max_update_norm": math.nan}, "max_update_norm: expected a number of 1e-06 to"),
    "a rate without end": (
        {"local": {"learning_rate": math.inf}},
        "local.learning_rate: expected a number > 0 and at most 1e6, got inf",
    ),
    "momentum of one": ({"local": {"momentum": 1.0}}, "local.momentum: expected a number >= 0"),
    "a negative proximal term": ({"local": {"proximal": -0.1}}, "local.proximal: expected a"),
    "an unknown rule": (
        {"aggregation": {"rule": "mode"}},
        "aggregation.rule: expected one of mean, median, trimmed_mean, krum, multi_krum,",
    ),
    "an unknown optimizer": (
        {"aggregation": {"optimizer": "adamw"}},
        "aggregation.optimizer: expected one of sgd, adam, yogi, got 'adamw'",
    ),
    "a robust rule that noise of the server does not cover": (
        {"aggregation": {"rule": "median"}},
        "aggregation.rule: 'median' goes with record_level alone, and \"mean\" with central: one "
        "update can change",
    ),
    "a mean that counts hostile updates": (
        {"aggregation": {"hostile": 2}},
        "aggregation.hostile: 'mean' does not use it",
    ),
    "Krum that knows of no hostile updates": (
        {**RECORDS, "aggregation": {"rule": "krum"}},
        "aggregation.hostile: 'krum' needs to know how many",
    ),
    "too many hostile updates for Krum": (
        {**RECORDS, "aggregation": {"rule": "krum", "hostile": 4}},
        "aggregation.hostile: against 4 hostile updates 'krum' needs at least 11 in a round, and "
        "min_updates is 10",
    ),
    "too many hostile updates to trim": (
        {**RECORDS, "aggregation": {"rule": "trimmed_mean", "hostile": 5}},
        "'trimmed_mean' needs at least 11 in a round",
    ),
    "an unknown encoding": (
        {"encoding": {"kind": "zip"}},
        "encoding.kind: expected one of float32, quantized, got 'zip'",
    ),
    "levels without bits": (
        {"encoding": {"kind": "quantized"}},
        "encoding.bits: expected 2 to 16, got 0",
    ),
    "bits of floats": ({"encoding": {"bits": 8}}, 'encoding.bits: goes with kind = "quantized"'),
    "more coordinates than there are": (
        {"encoding": {"coordinates": 10}},
        "encoding.coordinates: expected fewer than the 10 of the model, or 0 for all, got 10",
    ),
    "an unknown mechanism": (
        {"central": {"mechanism": "gauss"}},
        "central.mechanism: expected one of toeplitz, tree, got 'gauss'",
    ),
    "more bands than rounds": (
        {"central": {"bands": 101}},
        "central.bands: expected 1 to rounds, which is 100, got 101",
    ),
    "a tree with bands": (
        {"central": {"mechanism": "tree"}},
        'central.bands: goes with "toeplitz" alone, got 25',
    ),
    "nearly no noise": (
        {"central": {"noise_multiplier_millionths": 1}},
        "central: the training spends rho ",
    ),
    "another local mechanism": (
        {"local_noise": {"mechanism": {"name": "krr", "epsilon": 1.0}}},
        "local_noise.mechanism: expected one of sphere_codebook, got 'krr'",
    ),
    "no noise in the device's steps": (
        {"record_level": {"max_grad_norm": 1.0}},
        "record_level.noise_multiplier_millionths: expected 1 to",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_with_its_place(case: str) -> None:
    fields, message = REFUSED[case]
    with pytest.raises(InvalidInput) as refused:
        parsed(**fields)
    assert str(refused.value).startswith(message) or message in str(refused.value)


@pytest.mark.parametrize("field", ["local", "aggregation", "encoding", "central"])
def test_nothing_is_left_to_a_default(field: str) -> None:
    training = declared()
    training.ClearField(field)  # type: ignore[arg-type]
    expected = "protection" if field == "central" else field
    with pytest.raises(InvalidInput, match=f"^{expected}: expected "):
        parse(frozen(training))


def test_the_bytes_are_the_only_ones_of_their_training() -> None:
    data = frozen(declared())
    assert parse(data).revision == hashlib.sha256(data).digest()
    with pytest.raises(InvalidInput, match="not the canonical serialisation of their training"):
        parse(data + frozen(declared())[:8])  # the name, once more
    with pytest.raises(InvalidInput, match="fields that this version of hearsay does not know"):
        parse(data + b"\xf8\x07\x01")
    with pytest.raises(InvalidInput, match="are no training"):
        parse(b"\xff")
    with pytest.raises(InvalidInput, match="a training has at most 65536 bytes"):
        parse(bytes(1 << 17))


@settings(max_examples=40)
@given(st.binary(max_size=64), st.integers(0, 400))
def test_any_bytes_are_read_or_refused(junk: bytes, place: int) -> None:
    data = frozen(declared())
    try:
        parse(data[:place] + junk + data[place + len(junk) :])
    except InvalidInput as error:
        assert str(error)


def test_noise_of_the_server_is_accounted_from_its_integers_and_rounded_up() -> None:
    training = parsed()
    assert isinstance(training.protection, CentralNoise)
    assert training.rho is not None
    exact = prefix_sums.rho("toeplitz", 100, 25, 4, 25, Fraction(2))
    assert exact <= training.rho < exact + Fraction(1, BILLION)
    assert training.rho_billionths == training.rho * BILLION
    assert training.trusted == "server"
    assert "if the server is honest" in training.trust
    assert training.epsilon_per_update is None


def test_noise_of_the_device_is_accounted_as_its_mechanism_says() -> None:
    mechanism = SphereCodebook(10, 2.0, codes=64)
    told = declared(local_noise={"mechanism": mechanism_message(mechanism)})
    told.ClearField("encoding")
    training = parse(frozen(told))
    assert isinstance(training.protection, LocalNoise)
    assert training.epsilon_per_update == mechanism.realised_epsilon
    assert training.encoding is None
    assert (training.rho, training.rho_billionths, training.trusted) == (None, 0, "nobody")
    told.encoding.kind = "float32"
    with pytest.raises(InvalidInput, match="encoding: leave it out with local_noise"):
        parse(frozen(told))
    told.ClearField("encoding")
    told.dimension = 11
    with pytest.raises(InvalidInput, match="for updates of dimension 10, and dimension is 11"):
        parse(frozen(told))
    told.dimension = 10
    told.local_noise.mechanism.epsilon = 1.0
    with pytest.raises(InvalidInput, match=r"local_noise\.mechanism: "):
        parse(frozen(told))


def test_records_alone_may_be_protected_and_then_any_rule_may_be_used() -> None:
    training = parsed(**RECORDS, aggregation={"rule": "krum", "hostile": 3})
    assert isinstance(training.protection, RecordLevel)
    assert (training.rho, training.epsilon_per_update) == (None, None)
    for words in ("of multiplier 1 in", "nothing here checks that", "The person is not protected"):
        assert words in training.trust
