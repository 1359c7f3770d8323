"""Exported rows: read by others, and equal to what the server counts."""

import base64
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import analysed
import numpy as np
import pytest
from collected import DAYS, batch, collect, register, toml
from command import hearsay as command
from serving import serving, submit, tokens_of
from stored import ONCE

import hearsay.plans.plan
from dpsgd.reports.rows import Rows
from hearsay import Analyst, Unreachable
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.answers.rows import chunks
from hearsay_server.storage.store import Store
from hearsay_server.surveys import survey as surveys
from ldp import InvalidInput, Mechanism, Tally
from ldp.errors import NotReady, StorageFailed
from support import DAILY, SURVEY

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from hearsay_server.answers.export import _Parts, export, schema_of  # noqa: E402
from hearsay_server.answers.folders import open_folder  # noqa: E402
from hearsay_server.answers.manifest import NAME, Manifest, Period  # noqa: E402


class Exported:
    """A survey of all mechanisms, exported, with the tallies that its server had."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rows"
        with serving(folder / "data") as address:
            self.data, self.plan = register(address, toml())
            self.rows = collect(address, self.plan)
            with Analyst(address) as analyst:
                assert export(analyst, "all", self.path).rows == self.rows
                self.frame = analyst.rows("all")
                self.yesterday = analyst.rows("all", first_period=DAYS[1], last_period=DAYS[1])
                self.strict = analyst.rows("all", levels=["strict"], periods=DAYS[:2])
        store = Store(folder / "data")
        self.tallies = {name: store.tallies("all", name) for name in self.plan.attributes}
        self.pages = list(store.batches("all", page=3))
        self.batches = [b for page in self.pages for b in page]
        store.close()

    def chunks(self, seed: int) -> Iterator[analyst_pb2.ExportRowsResponse]:
        """All rows as the server streams them."""
        return chunks(self.plan, self.pages, self.plan.levels, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(tmp_path_factory.mktemp("exported"))


def manifest_of(path: Path) -> Manifest:
    return Manifest.read(open_folder(path))


def tallies(exported: Exported, attribute: str, triples: object) -> dict[tuple[str, str], Tally]:
    """Tally (code, level, period) of rows, whoever read them."""
    groups: dict[tuple[str, str], list[object]] = {}
    for code, level, period in triples:  # type: ignore[attr-defined]
        groups.setdefault((level, str(period)), []).append(code)
    found = {}
    for (level, period), codes in groups.items():
        mechanism = exported.plan.levels[level].mechanisms[attribute]
        if isinstance(codes[0], bytes | bytearray):
            array = mechanism.decode(b"".join(codes), len(codes))  # type: ignore[arg-type]
        elif mechanism.code_shape or mechanism.code_dtype.kind != "u":
            raise AssertionError("bytes were expected")
        else:
            array = np.array(codes).astype(mechanism.code_dtype)
        found[level, period] = mechanism.tally(array)
    return found


def stored(exported: Exported, attribute: str) -> dict[tuple[str, str], Tally]:
    return {(c.level, c.period): tally for c, tally in exported.tallies[attribute].items()}


def test_pandas_reads_tallies_equal_to_the_servers(exported: Exported) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.read_parquet(exported.path, dtype_backend="numpy_nullable")
    assert len(frame) == exported.rows
    for name in exported.plan.attributes:
        part = frame[frame[name].notna()]
        triples = zip(part[name], part[f"{name}__level"], part["period"], strict=True)
        assert tallies(exported, name, triples) == stored(exported, name)


def test_duckdb_reads_tallies_equal_to_the_servers(exported: Exported) -> None:
    duckdb = pytest.importorskip("duckdb")
    files = f"{exported.path}/*.parquet"
    with duckdb.connect() as connection:
        for name in exported.plan.attributes:
            triples = connection.execute(
                f'SELECT "{name}", "{name}__level", period '
                f"FROM read_parquet('{files}') WHERE \"{name}\" IS NOT NULL"
            ).fetchall()
            assert tallies(exported, name, triples) == stored(exported, name)


def test_an_analyst_has_the_same_rows_as_a_data_frame(exported: Exported) -> None:
    frame = exported.frame
    assert frame.attrs["plan"] == exported.data
    assert len(frame) == exported.rows
    for name in exported.plan.attributes:
        part = frame[frame[name].notna()]
        assert part[f"{name}__level"].notna().all()
        triples = zip(part[name], part[f"{name}__level"], part["period"], strict=True)
        assert tallies(exported, name, triples) == stored(exported, name)
    assert set(exported.yesterday["period"]) == {DAYS[1]}
    assert len(exported.yesterday) == exported.rows // 3


def test_rows_of_a_level_and_some_periods_are_those_that_the_server_counted(
    exported: Exported,
) -> None:
    frame = exported.strict
    for name in exported.plan.attributes:
        part = frame[frame[name].notna()]
        triples = zip(part[name], part[f"{name}__level"], part["period"], strict=True)
        assert tallies(exported, name, triples) == {
            (level, day): tally
            for (level, day), tally in stored(exported, name).items()
            if level == "strict" and day in DAYS[:2]
        }
    assert len(frame) == exported.rows // 3


def test_the_private_training_reads_every_row_from_both(exported: Exported) -> None:
    for rows in (Rows.of(exported.frame), Rows.read(exported.path)):
        assert rows.n == exported.rows
        for name in exported.plan.attributes:
            counted: dict[Mechanism, Tally] = {}
            for (level, _), tally in stored(exported, name).items():
                mechanism = exported.plan.levels[level].mechanisms[name]
                seen = counted.get(mechanism)
                counted[mechanism] = tally if seen is None else seen + tally
            found = {c.mechanism: c.mechanism.tally(c.codes) for c in rows.reports(name).cohorts}
            assert found == counted


def test_every_file_says_how_it_was_randomised(exported: Exported) -> None:
    assert manifest_of(exported.path).plan == exported.data
    for file in exported.path.glob("*.parquet"):
        metadata = pq.read_schema(file).metadata
        assert base64.b64decode(metadata[b"hearsay.plan"]) == exported.data
        assert metadata[b"hearsay.revision"].decode() == exported.plan.revision.hex()


def test_every_file_has_its_period_in_its_name_and_in_a_column(exported: Exported) -> None:
    periods = manifest_of(exported.path).periods
    assert list(periods) == DAYS
    names = [name for period in periods.values() for name in period.files]
    assert {file.name for file in exported.path.iterdir()} == {*names, "_export.json"}
    for day, period in periods.items():
        for name, rows in period.files.items():
            assert name.startswith(f"{day}-0-")
            table = pq.read_table(exported.path / name)
            assert table["period"].to_pylist() == [day] * rows


def test_codes_are_integers_where_they_can_be(exported: Exported) -> None:
    schema = schema_of(exported.plan, exported.data)
    assert schema.field("colour_krr").type == pa.int32()
    assert schema.field("colour_olh").type == pa.int64()
    assert schema.field("colour_oue").type == pa.binary(1)
    assert schema.field("colour_cms").type == pa.binary(36)


def records(plan: Plan, rows: int, columns: object) -> Counter[tuple[object, ...]]:
    """Every row as the tuple of its (attribute, level, code), in a bag."""
    found: list[list[object]] = [[] for _ in range(rows)]
    for column in columns:  # type: ignore[attr-defined]
        width = plan.levels[column.level].mechanisms[column.attribute].code_bytes
        bits = np.ones(rows, dtype=np.uint8)
        if column.present:
            packed = np.frombuffer(column.present, dtype=np.uint8)
            bits = np.unpackbits(packed, count=rows, bitorder="little")
        for position, row in enumerate(np.flatnonzero(bits)):
            code = column.codes[width * position : width * (position + 1)]
            found[row].append((column.attribute, column.level, code))
    return Counter(tuple(sorted(row)) for row in found)  # type: ignore[type-var]


def test_rows_stay_whole_and_are_mixed_over_batches(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearsay_server.answers.rows._CHUNK", 2000)  # some thirty rows a message
    before: Counter[tuple[object, ...]] = Counter()
    for stored_batch in exported.batches:
        before += records(exported.plan, stored_batch.rows, stored_batch.columns)
    streamed = list(exported.chunks(3))
    after: Counter[tuple[object, ...]] = Counter()
    for chunk in streamed:
        after += records(exported.plan, chunk.rows, chunk.columns)
    assert len(streamed) > len(exported.batches)
    assert after == before
    first = streamed[0]
    one_batch = [
        b for b in exported.batches
        if records(exported.plan, first.rows, first.columns)
        <= records(exported.plan, b.rows, b.columns)
    ]  # fmt: skip
    assert not one_batch  # a message is no part of a batch


@pytest.fixture
def daily(own: Callable[[str], Plan]) -> Plan:
    """The survey of `DAILY`, by a name of this test's own."""
    return own(DAILY)


def test_a_message_is_of_a_whole_period_or_of_many_batches(address: str, daily: Plan) -> None:
    answers = {"smokes": np.zeros(2, dtype=np.int64)}
    sent = [batch(daily, "open", day, answers, seed) for seed, day in enumerate(DAYS * 45)]
    more = [batch(daily, "open", DAYS[1], answers, seed) for seed in range(85)]
    submit(address, *sent, *more)
    with Analyst(address) as analyst:
        streamed = list(analyst.chunks(daily.survey))[1:]
    assert [(chunk.period, chunk.rows) for chunk in streamed] == [
        (DAYS[0], 90),
        (DAYS[1], 260),  # 128 batches and the two that would be a message by themselves
        (DAYS[2], 90),
    ]


def test_nothing_of_a_batch_but_its_rows_is_streamed(exported: Exported) -> None:
    for chunk in exported.chunks(4):
        data = chunk.SerializeToString()
        assert not any(stored_batch.id in data for stored_batch in exported.batches)


def test_an_export_appears_whole_or_not_at_all(
    address: str, daily: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    survey, file = daily.survey, tmp_path / "file"
    file.touch()
    answers = {"smokes": np.zeros(5, dtype=np.int64)}
    with Analyst(address) as analyst:
        with pytest.raises(NotReady, match=f"there are no such rows of '{survey}' stored"):
            export(analyst, survey, tmp_path / "out")
        submit(address, batch(daily, "strict", DAYS[0], answers, 1))

        def fail(*_: object) -> None:
            raise OSError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr("hearsay_server.answers.export.os.fsync", fail)
            with pytest.raises(StorageFailed, match=r"cannot use .*out: the disk is full"):
                export(analyst, survey, tmp_path / "out")
        assert list(tmp_path.iterdir()) == [file]
        assert export(analyst, survey, tmp_path / "out").rows == 5
        with pytest.raises(InvalidInput, match="exists: name a folder that does not"):
            export(analyst, survey, (tmp_path / "out").as_uri())
        with pytest.raises(StorageFailed, match=r"cannot use .*File exists"):
            export(analyst, survey, file / "out")


@pytest.mark.parametrize("umask", [0o077, 0o022])
def test_an_export_is_as_the_umask_has_it(
    address: str, daily: Plan, tmp_path: Path, umask: int
) -> None:
    submit(address, batch(daily, "strict", DAYS[0], {"smokes": np.zeros(5, dtype=np.int64)}, 1))
    before = os.umask(umask)
    try:
        with Analyst(address) as analyst:
            export(analyst, daily.survey, tmp_path / "rows")
    finally:
        os.umask(before)
    inside = [*(tmp_path / "rows").iterdir()]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "rows", *inside)]
    assert modes == [0o777 & ~umask, *[0o666 & ~umask] * len(inside)]


def test_the_command_exports_the_selected_levels_and_periods(
    address: str, daily: Plan, tmp_path: Path
) -> None:
    for seed, (level, day, rows) in enumerate(
        [("strict", DAYS[0], 5), ("strict", DAYS[1], 7), ("open", DAYS[0], 11)]
    ):
        answers = {"smokes": np.zeros(rows, dtype=np.int64)}
        submit(address, batch(daily, level, day, answers, seed))
    for number, (selection, rows) in enumerate(
        {
            (): 23,
            ("--level", "strict"): 12,
            ("--level", "strict", "--level", "open"): 23,
            ("--period", DAYS[0]): 16,
            ("--level", "strict", "--from", DAYS[1]): 7,
        }.items()
    ):
        to = tmp_path / str(number)
        done = command("export", daily.survey, *selection, "--to", to, "--target", address)
        assert done.returncode == 0, done.stderr
        assert sum(pq.read_table(file).num_rows for file in to.rglob("*.parquet")) == rows
    lax = ("--level", "lax", "--to", tmp_path / "lax")
    refused = command("export", daily.survey, *lax, "--target", address)
    assert refused.returncode == 1
    assert "level must be one of strict, open, got 'lax'" in refused.stderr
    assert not (tmp_path / "lax").exists()


def test_a_large_survey_is_written_in_parts_and_little_of_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearsay_server.answers.export._HELD", 4000)
    small = analysed.mixed_in_small_chunks
    monkeypatch.setattr("hearsay_server.answers.questions.mixed", small)
    waiting: list[int] = []
    add = _Parts.add
    monkeypatch.setattr(
        _Parts, "add", lambda parts, chunk: (add(parts, chunk), waiting.append(parts.bytes))
    )
    with serving(tmp_path / "data") as address:
        _, plan = register(address, DAILY)
        answers = {"smokes": np.arange(100) % 3}
        submit(
            address,
            *(batch(plan, "strict", day, answers, seed) for seed, day in enumerate(DAYS * 2)),
        )
        with Analyst(address) as analyst:
            assert export(analyst, "daily", tmp_path / "out").rows == 600
    assert max(waiting) < 4000
    store = Store(tmp_path / "data")
    tallies = {c.period: tally for c, tally in store.tallies("daily", "smokes").items()}
    store.close()
    assert tallies.keys() == set(DAYS)
    for day, tally in tallies.items():
        files = sorted((tmp_path / "out").glob(f"{day}-*.parquet"))
        assert len(files) > 1
        codes = pq.read_table(files)["smokes"].to_numpy().astype(np.uint8)
        assert plan.levels["strict"].mechanisms["smokes"].tally(codes) == tally


def test_columns_that_would_collide_are_refused() -> None:
    text = SURVEY.replace('name = "smokes"', 'name = "period"')
    data = surveys.resolve(surveys.from_toml(text, "t"))
    with pytest.raises(InvalidInput, match="two columns are called 'period'"):
        schema_of(hearsay.plans.plan.parse(data), data)


def test_a_folder_that_is_no_whole_export_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "once-0-0.parquet")
    with pytest.raises(InvalidInput, match=r"is no whole export .* it has no _export.json"):
        manifest_of(tmp_path)
    with pytest.raises(InvalidInput, match="is no whole export"):
        manifest_of(tmp_path / "once-0-0.parquet")
    for text in ("", "[]", '{"format": 2}', '{"format": 1}', '{"format": 1, "plan": "?"}'):
        (tmp_path / "_export.json").write_text(text)
        with pytest.raises(InvalidInput, match=r"_export.json is no manifest of an export"):
            manifest_of(tmp_path)


def test_a_manifest_with_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    whole = Manifest(ONCE, ("open",), {"once": Period(b"digest", 0, {"once-0-0.parquet": 12})})
    whole.write(open_folder(tmp_path))
    file = tmp_path / NAME
    text = file.read_bytes()
    assert manifest_of(tmp_path) == whole
    for bit in range(0, 8 * len(text), 23):
        flipped = bytearray(text)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        file.write_bytes(flipped)
        try:
            found = manifest_of(tmp_path)
        except InvalidInput:
            continue
        assert found == whole  # a blank or a letter's case, which says nothing


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("ftp://host/rows", "a path or a URI of file://, s3://, gs://, hdfs://; got ftp://"),
        ("abfs://container/rows", "a URI of file://, s3://, gs://, hdfs://; got abfs://"),
        ("file://rows", "file://rows is no folder that can be used"),
        ("s3://key:secret@bucket/rows?colour=red", "s3://bucket/rows is no folder.*'colour'"),
    ],
)
def test_a_folder_that_cannot_be_named_is_refused(where: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as refused:
        open_folder(where)
    assert "secret" not in str(refused.value)


def test_a_file_uri_is_the_path(tmp_path: Path) -> None:
    spaced = tmp_path / "a b"
    assert open_folder(spaced.as_uri()).path == open_folder(spaced).path == str(spaced)


def test_exporting_needs_an_analysts_token(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as address:
        _, plan = register(address, SURVEY)
        answers = {"smokes": np.zeros(5, dtype=np.int64)}
        submit(address, batch(plan, "strict", "once", answers, 1))
    _, secret = tokens_of(tmp_path / "data").create("analyst")
    with serving(tmp_path / "data") as address:
        with Analyst(address) as analyst, pytest.raises(Unreachable, match="does not accept"):
            analyst.rows("health")
        with Analyst(address, token=secret) as analyst:
            assert len(analyst.rows("health")) == 5


def test_many_small_chunks_become_one_row_group(address: str, daily: Plan, tmp_path: Path) -> None:
    """As devices send them, a batch a row: many small row groups would take long to read."""
    answers = {"smokes": np.array([1])}
    for _ in range(2):
        submit(address, *(batch(daily, "open", DAYS[0], answers, seed) for seed in range(150)))
    with Analyst(address) as analyst:
        assert sum(chunk.period == DAYS[0] for chunk in analyst.chunks(daily.survey)) > 1
        export(analyst, daily.survey, tmp_path / "rows")
    for file in (tmp_path / "rows").rglob("*.parquet"):
        assert pq.ParquetFile(file).num_row_groups == 1
