"""ADPE: what its published form claims and is worth, and the honest form's sensitivities."""

import math
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import adpe
import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from test_idx import packed
from torch import Tensor, nn

from dpsgd.accounting import GDPAccountant, analytic_noise, gaussian_epsilon
from dpsgd.adpe import ADPE, FunctionalMechanism, Published, shap_importance
from dpsgd.adpe.functional import sums
from dpsgd.adpe.published import coefficients, expanded
from dpsgd.clipping.schedules import Exponential
from dpsgd.estimators import PrivateClassifier
from dpsgd.whitening import PublicWhitening, second_moments
from ldp import InvalidInput
from ldp.testing import SeededCoins
from pages import blocks

DELTA = 1e-5
PAGE = Path(__file__).resolve().parents[2] / "docs" / "adpe.md"


def digits() -> tuple[Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    return torch.as_tensor(images).float() / 16, torch.as_tensor(labels)


def body() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(64, 16), nn.Tanh())


# --- as published ------------------------------------------------------------------------------


def importance(squares: float, features: int = 784) -> Tensor:
    """Importances of mean 1 of two values, the sum of whose squares is this."""
    spread = math.sqrt(squares / features - 1)
    found = torch.ones(features, dtype=torch.float64)
    found[: features // 2] += spread
    found[features // 2 :] -= spread
    return found


def test_a_claimed_epsilon_of_8_is_206_for_the_features_of_one_record() -> None:
    """With the importances of MNIST in the reference run: batches of 256, eight epochs."""
    alpha = importance(2299.5)
    alpha -= alpha.min().clamp_max(0)  # sum of squares of the reference, and none below 0
    alpha *= math.sqrt(2299.5 / float((alpha**2).sum()))
    found = ADPE(as_published=True, epsilon=8.0, delta=DELTA).claim(alpha)
    assert found.claimed == pytest.approx(8, rel=1e-6)
    assert found.rho == pytest.approx(128.7, abs=0.1)
    assert found.honest == pytest.approx(206, abs=0.5)


def test_the_honest_rho_is_that_of_the_noise_which_each_record_gets() -> None:
    """Brute force: the squared distance of two records in units of each feature's noise."""
    alpha = torch.tensor([0.5, 1.0, 1.5, 1e-9], dtype=torch.float64)
    adpe = ADPE(as_published=True, epsilon=2.0, epochs=3, batch_size=10)
    z = math.sqrt(3) / (math.sqrt(math.log(1e5) + 2) - math.sqrt(math.log(1e5)))
    corners = torch.tensor(list(product([0.0, 1.0], repeat=4)), dtype=torch.float64)
    deviation = z * 4 / (10 * alpha.clamp_min(1e-3))
    worst = max(float((((a - b) / deviation) ** 2).sum()) for a, b in combinations(corners, 2))
    assert adpe.claim(alpha).rho == pytest.approx(3 * worst / 2)


def test_the_laplace_variant_claims_a_pure_epsilon_and_is_worth_much_more() -> None:
    adpe = ADPE(as_published=True, mechanism="laplace", epsilon=8.0)
    found = adpe.claim(torch.ones(784))
    assert (found.claimed, found.rho, found.delta) == (pytest.approx(8), None, 0.0)
    assert found.honest == pytest.approx(256 * 8 / 4)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_budget_that_changes_over_epochs_claims_the_same_in_all(mechanism: str) -> None:
    flat = ADPE(as_published=True, epsilon=3.0, mechanism=mechanism)
    falling = replace(flat, schedule=Exponential(1.0, 0.8))
    found, changed = flat.claim(torch.ones(50)), falling.claim(torch.ones(50))
    assert changed.claimed == pytest.approx(found.claimed)
    assert changed.honest == pytest.approx(found.honest)
    assert falling.noise[0] > flat.noise[0] > falling.noise[-1]


@pytest.mark.parametrize("options", [{"shared": True}, {"epsilon": None}])
def test_nothing_is_promised_where_one_draw_serves_a_batch_or_none_is_made(options) -> None:
    assert ADPE(as_published=True, **options).claim(torch.ones(9)).honest == math.inf


def test_a_trained_model_refuses_to_name_an_epsilon_and_says_both() -> None:
    images, labels = digits()
    adpe = ADPE(as_published=True, epochs=1)
    with pytest.warns(UserWarning, match="claimed epsilon 8, honest epsilon"):
        model = adpe.fit(body(), images, labels)
    assert isinstance(model, Published)
    rho = f"rho {model.claim.rho:.4g}"
    with pytest.raises(InvalidInput, match=rf"claimed epsilon 8, honest .*{rho}.*no bound"):
        model.get_epsilon(DELTA)


@pytest.mark.slow
def test_without_noise_it_learns_and_with_the_noise_of_its_claim_it_does_not() -> None:
    images, labels = digits()
    plain = ADPE(as_published=True, epsilon=None, batch_size=32, epochs=10, learning_rate=1e-2)
    model = plain.fit(body(), images[:1400], labels[:1400])
    right = (model.predict(images[1400:]) == labels[1400:]).double().mean()
    assert right > 0.7
    with pytest.warns(UserWarning, match="ADPE as published"):
        noisy = replace(plain, epsilon=8.0).fit(body(), images[:1400], labels[:1400])
    assert (noisy.predict(images[1400:]) == labels[1400:]).double().mean() < 0.35


def test_noise_on_coefficients_protects_no_label_in_the_layers_below() -> None:
    """The noise is a constant: what it adds to the loss does not depend on the lower weights."""
    images, labels = digits()
    lower, weights = body(), torch.randn(10, 16)
    grads = []
    for scale in (0.0, 1000.0):
        linear, quadratic = coefficients(lower(images[:5]), torch.eye(10)[labels[:5]])
        linear = linear + scale * torch.randn_like(linear)
        quadratic = quadratic + scale * torch.randn_like(quadratic)
        lower.zero_grad()
        expanded(linear, quadratic, weights).backward()
        grads.append(lower[0].weight.grad.clone())
    assert torch.equal(*grads)


def test_the_expanded_loss_is_the_logistic_one_up_to_third_order() -> None:
    units, truth = torch.rand(6, 3).double(), torch.eye(2).double()[[0, 1, 1, 0, 1, 0]]
    weights = 0.01 * torch.randn(2, 3).double()
    exact = nn.functional.binary_cross_entropy_with_logits(
        units @ weights.T, truth, reduction="none"
    )
    found = 2 * math.log(2) + expanded(*coefficients(units, truth), weights)
    assert found == pytest.approx(float(exact.sum(1).mean()), abs=1e-8)


def test_the_importance_by_shap_is_where_the_labels_are() -> None:
    pytest.importorskip("captum")
    inputs = torch.rand(60, 5, generator=torch.Generator().manual_seed(1))
    model = nn.Linear(5, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 3, 0, 0, 1], [0, -3, 0, 0, 0]]))
        labels = model(inputs).argmax(1)
        alpha = shap_importance(model, inputs, labels, torch.zeros(2, 5))
        # Of a linear model the SHAP value is weight times distance from the baseline.
        values = (model.weight[labels] * inputs).mean(0).abs()
    assert alpha.numpy() == pytest.approx((5 * values / values.sum()).numpy(), rel=1e-4)
    assert float(alpha.mean()) == pytest.approx(1)
    with pytest.raises(InvalidInput, match="two baselines"):
        shap_importance(model, inputs, labels, torch.zeros(1, 5))
    with pytest.raises(InvalidInput, match="no feature"):
        shap_importance(model, inputs * 0, labels, torch.zeros(2, 5))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"as_published": False}, "does not keep the epsilon that it claims"),
        ({"mechanism": "cauchy"}, "gaussian, laplace, got 'cauchy'"),
        ({"epsilon": 0.0}, "or None for no noise"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"batch_size": 0}, "batch_size"),
        ({"least_importance": 0.0}, "least_importance"),
        ({"input_sensitivity": -1.0}, "input_sensitivity"),
        ({"schedule": lambda t: 1.0 - t}, "schedule"),
    ],
)
def test_bad_parameters_are_refused(options, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        ADPE(**({"as_published": True} | options))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda x, y, a: (x[:9], y[:9], a), "batch of 256"),
        (lambda x, y, a: (x, y, a[:5]), "64 features"),
        (lambda x, y, a: (2 * x, y, a), r"in \[0, 1\]"),
        (lambda x, y, a: (x * math.nan, y, a), r"in \[0, 1\]"),
        (lambda x, y, a: (x, y, a / 0), "finite importances"),
        (lambda x, y, a: (x, y[:9], a), "label for each"),
        (lambda x, y, a: (x, y - 1, a), "from 0 on"),
        (lambda x, y, a: (x, y.double(), a), "integer label"),
    ],
)
def test_records_that_do_not_fit_are_refused(change, reason: str) -> None:
    images, labels = digits()
    with pytest.raises(InvalidInput, match=reason):
        ADPE(as_published=True).fit(body(), *change(images, labels, torch.ones(64)))


# --- the honest form ---------------------------------------------------------------------------


def records(count: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random records, the corners, and opposite pairs; then their labels in 0..2."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, d, generator=generator, dtype=torch.float64)
    rows = torch.cat([rows, -rows[:2], torch.eye(d).double(), 1e200 * rows[:1], 0 * rows[:1]])
    return rows, torch.randint(3, (len(rows),), generator=generator)


@pytest.mark.parametrize("split", [0.0, 0.1, 0.8])
def test_a_record_moves_the_released_sums_by_1_at_most_and_a_pair_by_less_than_2(
    split: float,
) -> None:
    rows, labels = records(12, 4)
    one = [
        sums(rows[i : i + 1], torch.tensor([k]), 3, split)
        for i in range(len(rows))
        for k in range(3)
    ]
    norms = torch.stack(one).norm(dim=1)
    assert float(norms.max()) <= 1
    assert float(norms.max()) > 1 - 1e-9  # and no smaller sensitivity holds
    replaced = max(float((a - b).norm()) for a, b in combinations(one, 2))
    assert replaced <= 2
    # Within a data set: what one record adds is what it adds alone.
    whole = sums(rows, labels, 3, split)
    for i in range(len(rows)):
        rest = torch.arange(len(rows)) != i
        moved = whole - sums(rows[rest], labels[rest], 3, split)
        assert float(moved.norm()) <= 1 + 1e-9


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_account_is_that_of_one_gaussian_mechanism(epsilon: float) -> None:
    rows, labels = records(12, 4)
    model = FunctionalMechanism(epsilon=epsilon, delta=DELTA).fit(rows, labels, classes=3)
    assert model.get_epsilon(DELTA) <= epsilon
    z = analytic_noise(epsilon, DELTA)
    assert model.get_epsilon(DELTA) == pytest.approx(gaussian_epsilon(z, DELTA), rel=1e-9)
    assert model.get_epsilon(DELTA) == pytest.approx(epsilon, rel=1e-6)


def test_the_solution_is_ridge_regression_where_there_is_nearly_no_noise() -> None:
    rows, labels = records(500, 4)
    loud = FunctionalMechanism(epsilon=30.0, delta=0.1).fit(rows, labels, classes=3)
    z = analytic_noise(30.0, 0.1)
    units = rows[rows.norm(dim=1) > 0]
    units = units / units.abs().amax(1, keepdim=True)
    units = units / units.norm(dim=1, keepdim=True)
    truth = torch.eye(3).double()[labels[rows.norm(dim=1) > 0]]
    ridge = z / math.sqrt(0.8) * 2 / 8 * torch.eye(4).double()
    target = units.T @ truth
    target = target - target.mean(1, keepdim=True)
    exact = torch.linalg.solve(units.T @ units + ridge, target)
    assert float((loud.weights - exact).abs().max()) < 20 * z / 100


def test_noise_of_the_sums_has_the_deviation_of_the_account() -> None:
    """By the weights of records that are zeros: S alone, over a known ridge."""
    rows, labels = torch.zeros(3, 40), torch.zeros(3, dtype=torch.int64)
    mechanism = FunctionalMechanism(epsilon=1.0, public=torch.eye(40))
    model = mechanism.fit(rows, labels, classes=10, coins=SeededCoins(5))
    z = analytic_noise(1.0, DELTA)
    centred = model.weights * (z**2 / 10 + 3 / 40)
    assert float(centred.std()) == pytest.approx(z * math.sqrt(0.9), rel=0.1)


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"split": 1.0}, "split"), ({"epsilon": -1.0}, "epsilon"), ({"delta": 0.0}, "delta")],
)
def test_bad_parameters_of_the_mechanism_are_refused(options, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        FunctionalMechanism(**options)


@pytest.mark.parametrize(
    ("x", "y", "options", "reason"),
    [
        (torch.ones(3), torch.zeros(3).long(), {}, r"shape \(n, d\)"),
        (torch.ones(3, 2), torch.zeros(2).long(), {}, "label for each of 3"),
        (torch.ones(3, 2), torch.zeros(3), {}, "integer label"),
        (torch.ones(3, 2), ["0", "1", "1"], {}, "integer label"),
        (torch.ones(3, 2), [None, 1, 1], {}, "integer label"),
        (torch.ones(3, 2), torch.tensor([0, 1, 2]), {}, "outside of 0..1"),
        (torch.ones(3, 2), torch.tensor([0, 1, -1]), {}, "outside of 0..1"),
        (torch.ones(3, 2), torch.zeros(3).long(), {"public": torch.ones(2, 5)}, "5 features"),
    ],
)
def test_records_that_do_not_fit_the_mechanism_are_refused(x, y, options, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        FunctionalMechanism(**options).fit(x, y, classes=2)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "uint16", "int32"])
def test_labels_may_be_of_any_integer_type(dtype: str) -> None:
    rows, labels = torch.eye(2)[[0, 1, 1]], np.array([0, 1, 1], dtype)
    found = FunctionalMechanism().fit(rows, labels, classes=2, coins=SeededCoins(1))
    same = FunctionalMechanism().fit(rows, [0, 1, 1], classes=2, coins=SeededCoins(1))
    assert torch.equal(found.weights, same.weights)
    plain = ADPE(as_published=True, epsilon=None, epochs=1, batch_size=3)
    plain.fit(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), rows, torch.as_tensor(labels))


# --- public whitening --------------------------------------------------------------------------


def test_public_records_spread_alike_in_every_direction_after_whitening() -> None:
    generator = torch.Generator().manual_seed(2)
    public = torch.randn(4000, 6, generator=generator) * torch.tensor([9.0, 1, 1, 1, 1, 0.2]) + 3
    whitening = PublicWhitening.fit(public, ridge=1e-9)
    raw = torch.linalg.eigvalsh(second_moments(public))
    whitened = torch.linalg.eigvalsh(second_moments(whitening.transform(public)))
    assert float(raw[-1] / raw[0]) > 100
    assert float(whitened[-1] / whitened[0]) < 3


def test_every_whitened_record_has_a_norm_of_at_most_1() -> None:
    odd = torch.tensor(
        [[0.0, 0], [math.nan, 1], [math.inf, 1], [1e300, 1e300], [5e-324, 0], [-1, 2]],
        dtype=torch.float64,
    )
    whitening = PublicWhitening.fit(torch.cat([odd, torch.randn(50, 2).double()]))
    found = whitening.transform(odd).double().norm(dim=1)
    assert found.tolist() == pytest.approx([0, 0, 0, 1, 1, 1], abs=1e-5)
    many = whitening.transform(torch.randn(5000, 2)).double().norm(dim=1)
    assert float(many.max()) <= 1


def test_what_cannot_be_whitened_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no public record"):
        PublicWhitening.fit(torch.zeros(3, 2))
    with pytest.raises(InvalidInput, match=r"shape \(n, d\)"):
        PublicWhitening.fit(torch.zeros(3))
    with pytest.raises(InvalidInput, match="2 features, got 3"):
        PublicWhitening.fit(torch.ones(3, 2)).transform(torch.ones(3, 3))
    with pytest.raises(InvalidInput, match="ridge"):
        PublicWhitening.fit(torch.ones(3, 2), ridge=0.0)


def test_whitened_digits_are_learned_within_the_epsilon() -> None:
    """All private records in each of 40 steps: the account is one Gaussian mechanism, exactly."""
    images, labels = digits()
    private, tests = images[300:1500], images[1500:]
    whitening = PublicWhitening.fit(images[:300], ridge=1e-2)
    model = PrivateClassifier(
        epsilon=3.0,
        steps=40,
        batch_size=len(private),
        learning_rate=5.0,
        optimizer=partial(torch.optim.SGD, momentum=0.9),
        classes=range(10),
        accountant=GDPAccountant,
        coins=SeededCoins(7),
    )
    model.fit(whitening.transform(private), labels[300:1500])
    z = analytic_noise(3.0, DELTA) * math.sqrt(40)
    assert model.noise_multiplier_ == pytest.approx(z, rel=1e-5)
    assert 2.999 < model.epsilon_ <= 3
    assert model.score(whitening.transform(tests), labels[1500:]) > 0.75


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:ADPE as published")
def test_the_code_of_the_page_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("captum")
    names: dict[str, Any] = {}
    for block in blocks(PAGE.read_text(encoding="utf-8"), "python"):
        exec(compile(block, "adpe.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "(3, 1e-05)" in printed
    assert "claimed epsilon 8, honest epsilon" in printed
    assert (
        names["model"].score(names["whitening"].transform(names["private"]), names["labels"]) > 0.7
    )


def idx_folder(path: Path) -> None:
    """Write a training and a test set of 80 images of noise, with labels 0 to 9."""
    source = np.random.default_rng(1)
    for name in ("train", "t10k"):
        images = source.integers(256, size=(80, 28, 28), dtype=np.uint8)
        (path / f"{name}-images-idx3-ubyte").write_bytes(packed(images))
        labels = np.arange(80, dtype=np.uint8) % 10
        (path / f"{name}-labels-idx1-ubyte").write_bytes(packed(labels))


@pytest.mark.slow
def test_the_comparison_runs_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a few images of noise, in the form of a set: what it measures is in docs/adpe.md."""
    monkeypatch.setattr(adpe, "EPSILONS", (0.5,))
    idx_folder(tmp_path)
    arguments = adpe.parsed(["--mnist", str(tmp_path), "--epochs", "1"])
    results = adpe.run(arguments)
    lines = adpe.table(results).splitlines()
    assert len(lines) == 2 + len(results["mnist"])
    assert any(line.startswith("| as printed | 8 |") for line in lines)
    assert any("whitened by public images | 0.5 | 0.5 |" in line for line in lines)
    adpe.draw(results, tmp_path / "adpe.png")
    assert (tmp_path / "adpe.png").stat().st_size > 10_000
