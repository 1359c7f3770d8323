"""The example of a training over processes of devices."""

from pathlib import Path

import pytest


@pytest.mark.slow
def test_devices_of_their_own_train_a_model_together(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    import federated_digits  # of examples/

    accuracies, spent = federated_digits.run(tmp_path, devices=4, rounds=4, http=True)
    assert len(accuracies) == 4
    for number, each in enumerate(spent):
        assert each is not None
        assert (each.used, each.participations, each.last_round) == (2, 2, 4 - number % 2)
        assert 0 < each.rho < 2.5
    assert "round  updates  accuracy    rho  epsilon" in capfd.readouterr().out
