"""Rows as a server gave them out, in frames and in Parquet."""

import json
from pathlib import Path

import numpy as np
import pytest

from dpsgd.reports.channels import Reports
from dpsgd.reports.rows import METADATA, Rows
from ldp import (
    KRR,
    HadamardResponse,
    InvalidInput,
    Mechanism,
    SubsetSelection,
    UnaryEncoding,
)
from ldp.mechanisms import PiecewiseMechanism
from ldp.testing import SeededCoins

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

PAIRS = {
    "krr": (KRR(5, 1.0), KRR(5, 3.0)),
    "unary": (UnaryEncoding(5, 1.0), UnaryEncoding(5, 3.0)),
    "wide": (UnaryEncoding(40, 1.0), UnaryEncoding(40, 3.0)),
    "subset": (SubsetSelection(20, 0.5), SubsetSelection(20, 1.0)),
    "hadamard": (HadamardResponse(5, 1.0), HadamardResponse(5, 3.0)),
}
LEVELS = ("strict", "open")


def described(mechanism: Mechanism) -> dict[str, object]:
    integers = {name: list(values) for name, values in mechanism.integers.items()}
    return {"mechanism": mechanism.name, "epsilon": mechanism.epsilon, "integers": integers}


def column(codes: list, mechanism: Mechanism):
    if mechanism.code_shape in ((), (1,)):
        whole = [None if code is None else int(np.ravel(code)[0]) for code in codes]
        return pa.array(whole, pa.uint16())
    width = mechanism.code_bytes
    return pa.array([None if c is None else c.tobytes() for c in codes], pa.binary(width))


def written(folder: Path, pair: tuple[Mechanism, Mechanism], coins: SeededCoins):
    """Two partitions of 60 rows; every third row has no answer."""
    metadata = {
        METADATA: json.dumps(
            {"q": {n: described(m) for n, m in zip(LEVELS, pair, strict=True)}}
        ).encode()
    }
    expected = []
    for part in range(2):
        codes, levels = [], []
        for row in range(60):
            level = row % 2
            code = pair[level].randomize_many([row % 5], coins)[0] if row % 3 else None
            codes.append(code)
            levels.append(LEVELS[level] if row % 3 else None)
            expected.append((level if row % 3 else None, code))
        names = pa.array(levels).dictionary_encode()
        table = pa.table({"q": column(codes, pair[0]), "q__level": names, "other": range(60)})
        place = folder / f"period=2026-07-0{part + 1}"
        place.mkdir(parents=True)
        pq.write_table(table.replace_schema_metadata(metadata), place / "part-0.parquet")
    return expected


@pytest.mark.parametrize("name", PAIRS)
def test_codes_levels_and_channels_come_back(name: str, tmp_path, coins: SeededCoins) -> None:
    expected = written(tmp_path, PAIRS[name], coins)
    reports = read_reports(tmp_path, "q")
    assert reports.n == 120
    assert set(reports.mechanisms) == set(PAIRS[name])
    for cohort in reports.cohorts:
        level = PAIRS[name].index(cohort.mechanism)
        rows = [row for row, (found, _) in enumerate(expected) if found == level]
        assert cohort.rows.tolist() == rows
        assert np.array_equal(cohort.codes, np.array([expected[row][1] for row in rows]))
    missing = [row for row, (found, _) in enumerate(expected) if found is None]
    assert (reports.likelihoods()[missing] == 1).all()


def read_reports(path: Path, attribute: str) -> Reports:
    return Rows.read(path, [attribute]).reports(attribute)


def rewritten(folder: Path, change) -> None:
    for file in folder.rglob("*.parquet"):
        table = pq.ParquetFile(file).read()
        pq.write_table(change(table), file)


def with_channels(table, text: bytes):
    return table.replace_schema_metadata({METADATA: text})


def test_more_than_was_promised_is_refused(tmp_path, coins: SeededCoins) -> None:
    written(tmp_path, PAIRS["krr"], coins)
    false = described(KRR(5, 3.0)) | {"epsilon": 1.0}
    text = json.dumps({"q": {"strict": false, "open": false}}).encode()
    rewritten(tmp_path, lambda table: with_channels(table, text))
    with pytest.raises(InvalidInput, match="the integers give epsilon 3"):
        read_reports(tmp_path, "q")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.replace_schema_metadata(None), "does not say how its codes"),
        (lambda t: with_channels(t, b"{"), "does not say how its codes"),
        (lambda t: with_channels(t, b'{"p": {}}'), "does not say how its codes"),
        (lambda t: with_channels(t, b'{"q": {}}'), "level 'open' of 'q' has no channel"),
        (lambda t: t.set_column(0, "q", pa.array([9] * 60, pa.uint16())), "krr"),
        (lambda t: t.set_column(0, "q", pa.array([-1] * 60)), "never negative"),
        (lambda t: t.set_column(0, "q", pa.array([b"abc"] * 60)), "krr codes take"),
        (lambda t: t.drop_columns(["q__level"]), "has no columns 'q' and 'q__level'"),
    ],
    ids=["none", "json", "attribute", "level", "code", "negative", "width", "column"],
)
def test_what_does_not_fit_is_refused(tmp_path, coins: SeededCoins, change, reason) -> None:
    written(tmp_path, PAIRS["krr"], coins)

    def filled(table):
        levels = pa.array(["open"] * 60).dictionary_encode()
        return change(table.set_column(1, "q__level", levels))

    rewritten(tmp_path, filled)
    with pytest.raises(InvalidInput, match=reason):
        read_reports(tmp_path, "q")


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no"):
        read_reports(tmp_path / "nowhere", "q")
    (tmp_path / "x.parquet").write_bytes(b"no parquet")
    with pytest.raises(InvalidInput, match=r"cannot read .*x\.parquet"):
        read_reports(tmp_path / "x.parquet", "q")


def frame_of(columns: dict[str, object], channels: dict[str, dict[str, Mechanism]]):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(columns)
    frame.attrs["channels"] = json.dumps(
        {
            name: {level: described(mechanism) for level, mechanism in levels.items()}
            for name, levels in channels.items()
        }
    )
    return frame


def survey():
    """Four rows: a number and a label each, at one level, at two, or only one of them."""
    pd = pytest.importorskip("pandas")
    number, label = PiecewiseMechanism(1.0), {"strict": KRR(3, 1.0), "open": KRR(3, 2.0)}
    columns = {
        "age": pd.array([0, 1, 2, None], dtype="Int32"),
        "age__level": ["strict", "open", "strict", None],
        "answer": pd.array([0, 1, 2, 2], dtype="Int32"),
        "answer__level": ["strict", "open", "open", "open"],
    }
    return frame_of(columns, {"age": dict.fromkeys(LEVELS, number), "answer": label}), label


def test_a_frame_has_the_codes_levels_and_channels() -> None:
    frame, label = survey()
    strict, open_ = sorted(Rows.of(frame).reports("answer").cohorts, key=lambda c: len(c.rows))
    assert (strict.mechanism, strict.rows.tolist(), strict.codes.tolist()) == (
        label["strict"],
        [0],
        [0],
    )
    assert (open_.mechanism, open_.rows.tolist(), open_.codes.tolist()) == (
        label["open"],
        [1, 2, 3],
        [1, 2, 2],
    )


def test_rows_of_a_frame_may_be_picked() -> None:
    frame, _ = survey()
    picked = Rows.of(frame[frame["age"].notna()])
    assert picked.n == 3
    assert len(picked.reports("answer").mechanisms) == 2


def test_what_nobody_answered_says_nothing() -> None:
    frame, label = survey()
    reports = Rows.of(frame[:0]).reports("answer")
    assert (reports.n, set(reports.mechanisms)) == (0, set(label.values()))
    reports = Rows.of(frame[3:]).reports("age")
    assert reports.numbers().tolist() == [0.0]


def test_a_data_set_has_what_the_losses_take() -> None:
    frame, _ = survey()
    rows = Rows.of(frame)
    features, answers = rows.dataset("answer", ["age", "answer"]).tensors
    assert features.shape == (4, 1 + 3)
    assert features[:, 0].numpy() == pytest.approx(rows.reports("age").numbers(), abs=1e-6)
    assert features[3, 0] == 0
    assert features[:, 1:].numpy() == pytest.approx(rows.reports("answer").indicators(), rel=1e-6)
    assert answers.numpy() == pytest.approx(rows.reports("answer").likelihoods(), rel=1e-6)
    _, answers = rows.dataset("answer", [], unbiased=True).tensors
    assert answers.numpy() == pytest.approx(rows.reports("answer").indicators(), rel=1e-6)


def test_features_that_no_row_has_beside_the_label_are_refused() -> None:
    frame, _ = survey()
    sampled = Rows.of(frame[3:])
    assert len(sampled.dataset("answer", [])) == 1
    with pytest.raises(InvalidInput, match=r"no row has both 'answer' and one of age.*split"):
        sampled.dataset("answer", ["age"])


def test_every_way_in_which_records_answered_is_in_the_account() -> None:
    frame, label = survey()
    number = PiecewiseMechanism(1.0)
    assert Rows.of(frame).records(["age", "answer"]) == {
        "strict": [number, label["strict"]],
        "open": [number, label["open"]],
        "age strict, answer open": [number, label["open"]],
        "answer open": [label["open"]],
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda frame: frame.attrs.clear(), "does not say how"),
        (lambda frame: frame.attrs.update(channels="["), "does not say how"),
        (lambda frame: frame.pop("answer__level"), "no columns 'answer'"),
        (lambda frame: frame.insert(0, "answer", frame.pop("answer") - 1), "never negative"),
        (lambda frame: frame.insert(0, "answer", frame.pop("answer") + 1), "krr"),
    ],
    ids=["nothing", "json", "column", "negative", "code"],
)
def test_a_frame_that_does_not_fit_is_refused(change, reason) -> None:
    frame, _ = survey()
    change(frame)
    with pytest.raises(InvalidInput, match=reason):
        Rows.of(frame).reports("answer")
