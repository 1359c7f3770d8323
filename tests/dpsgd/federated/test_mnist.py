"""Federated training of MNIST: the first rounds of the paper's curve, and attackers."""

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
MNIST = ROOT.parent / "shared" / "data" / "mnist"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MNIST.is_dir(), reason=f"needs {MNIST}"),
]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples" / "federated_mnist.py"))


@pytest.fixture(scope="module")
def images(script: dict[str, Any]) -> Any:
    return script["idx"].load(MNIST)


def test_the_2nn_has_90_percent_after_about_six_rounds(script: dict[str, Any], images: Any) -> None:
    history = script["curve"](*images, "IID", 8)
    assert history.rounds_to(0.9) in (5, 6, 7, 8)  # 97% comes at round 60


def test_accuracies_under_attack_are_those_of_the_table(
    script: dict[str, Any], images: Any
) -> None:
    def found(name: str, attack: str) -> float:
        strategy, attacker = script["STRATEGIES"][name], script["ATTACKS"][attack]
        return 100 * float(script["attacked"](*images, "IID", strategy, attacker))

    assert found("FedAvg", "none") == pytest.approx(87.9, abs=1)
    assert found("FedAvg", "-5 x mean") < 20
    assert found("FedMedian", "-5 x mean") == pytest.approx(87.4, abs=1)
    assert found("Krum", "labels 9 - y") == pytest.approx(86.0, abs=1)
