"""How large a deployment must be: a small load model.

    python docs/sizing.py                                  # rewrites the tables of operating.md
    python docs/sizing.py --devices 5e6 --peak 4 --idle 30 # tells of a load of yours

Every constant below is a measurement of docs/benchmarks.md, on one machine, or says that it is an
assumption. The model multiplies; it knows nothing of how costs change with the size.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

DAY = 86_400

CALL = 363e-6
"""CPU seconds of a server for a call of one report, many under way ("The server")."""
COMMIT = 1.7e-3
"""CPU seconds more where a call has a commit of its own ("Connections")."""
COMMITS = 200.0
"""Commits of its own a second, at most: with more calls than that, calls share them
("PostgreSQL", one call under way). The model counts them once, for the least busy process."""
HANDSHAKE = 970e-6
"""CPU seconds more where the call comes over a new connection with TLS ("Connections")."""
NGINX = 650e-6
"""CPU seconds of nginx for a new connection with TLS and its call ("Connections")."""
IDLE = 45e3
"""Bytes of a server's memory for an idle connection with TLS ("Connections")."""
ROW = 35e-6
"""CPU seconds of PostgreSQL for a call of one report, 512 under way ("PostgreSQL")."""
KEPT = 400.0
"""Bytes that PostgreSQL keeps of a batch of one report ("PostgreSQL")."""
LOG = 650.0
"""Bytes of PostgreSQL's log for it, in a small table ("PostgreSQL")."""

PAGE = 8192.0
"""Bytes of a page of PostgreSQL. In a large table each batch, whose id is random, changes a page of
the index of ids of its own. PostgreSQL then writes that page to its log and later to its place.
Extrapolated: no table that large was measured."""

BUSY = 0.6
"""Assumed: the share of a core, a disk or a limit that a peak may take."""
CONNECTIONS = 10_000
"""The default of `max_connections`, of each process."""
DISK = 400e6
"""Assumed: bytes a second that the database's disk writes all day."""
DATABASE_CORES = 16
"""Assumed: cores of the database's machine, which PostgreSQL uses all."""


@dataclass(frozen=True)
class Load:
    """What devices do. One batch is one report, one call and one connection."""

    devices: float
    batches: float = 1.0
    """Batches of each device and day."""
    peak: float = 10.0
    """The busiest minute over the mean of the day."""
    idle: float = 300.0
    """Seconds for which a connection stays open: `max_connection_idle_seconds`, or nginx's
    `keepalive_timeout`."""
    days: float = 30.0
    """Days for which rows are kept: `keep_batches_days`."""

    def mean(self) -> float:
        """Return the calls a second, on average."""
        return self.devices * self.batches / DAY

    def most(self) -> float:
        """Return the calls a second in the busiest minute."""
        return self.peak * self.mean()


@dataclass(frozen=True)
class Need:
    """What a load asks for at its peak."""

    cores: float
    """Of servers."""
    connections: float
    """Open at once to the servers."""
    nginx: float
    """Cores of nginx."""
    database: float
    """Cores of PostgreSQL."""
    written: float
    """Bytes a second that PostgreSQL writes, log and pages."""
    kept: float
    """Bytes of the rows that PostgreSQL keeps."""

    def shares(self) -> Mapping[str, float]:
        """Return what is used of one process and one database; above 1 it is saturated."""
        return {
            "processor of a process": self.cores / BUSY,
            "connections of a process": self.connections / CONNECTIONS / BUSY,
            "processor of PostgreSQL": self.database / DATABASE_CORES / BUSY,
            "writes of PostgreSQL": self.written / DISK / BUSY,
        }

    def first(self) -> str:
        """Return what saturates first, with one process."""
        shares = self.shares()
        return max(shares, key=lambda name: shares[name])

    def then(self) -> str:
        """Return what saturates first with processes enough: what a deployment has one of."""
        shares = {name: share for name, share in self.shares().items() if "PostgreSQL" in name}
        return max(shares, key=lambda name: shares[name])

    def processes(self) -> int:
        """Return how many server processes are needed."""
        shares = self.shares()
        most = max(shares["processor of a process"], shares["connections of a process"])
        return max(1, math.ceil(most))


def need(load: Load, *, proxied: bool) -> Need:
    """Return what a load asks for, with or without nginx that has TLS in front.

    nginx holds the devices' connections, and few of its own to the servers.
    """
    calls = load.most()
    return Need(
        cores=calls * (CALL if proxied else CALL + HANDSHAKE) + min(calls, COMMITS) * COMMIT,
        connections=0.0 if proxied else calls * load.idle,
        nginx=calls * NGINX if proxied else 0.0,
        database=calls * ROW,
        written=calls * (LOG + 2 * PAGE),
        kept=load.devices * load.batches * load.days * KEPT,
    )


LOADS = {
    "10^6": Load(1e6),
    "10^6, `max_connection_idle_seconds = 30`": Load(1e6, idle=30.0),
    "10^8, the same": Load(1e8, idle=30.0),
    "10^9, the same": Load(1e9, idle=30.0),
}
"""The loads of the tables, the first one with the defaults of the server."""


def direct() -> str:
    """Return what is used where devices connect to servers, as rows of Markdown."""
    return _table(LOADS, proxied=False)


def proxied() -> str:
    """Return what is used behind nginx, as rows of Markdown."""
    loads = {name.partition(",")[0]: load for name, load in LOADS.items()}  # the last of each
    return _table(loads, proxied=True)


def stored() -> str:
    """Return what PostgreSQL writes and keeps, as rows of Markdown."""
    lines = _head("devices a day", ["log, at the peak", "with pages, at the peak", "kept in a day"])
    for name in ("10^6", "10^8", "10^9"):
        load = Load(float(name.replace("10^", "1e")))
        asked = need(load, proxied=True)
        log = load.most() * LOG
        cells = [f"{_bytes(log)}/s", f"{_bytes(asked.written)}/s", _bytes(asked.kept / load.days)]
        lines.append(_row(name, cells))
    return "\n".join(lines)


def _table(loads: Mapping[str, Load], *, proxied: bool) -> str:
    names = [name for name in need(Load(1.0), proxied=proxied).shares() if _shown(name, proxied)]
    more = ["cores and connections of nginx"] if proxied else ["memory of connections"]
    last = ["first, with one process", "then, with enough processes"]
    lines = _head("devices a day", ["calls/s, mean and peak", *names, "processes", *more, *last])
    for name, load in loads.items():
        asked = need(load, proxied=proxied)
        shares = asked.shares()
        cells = [f"{load.mean():,.0f}, {load.most():,.0f}"]
        cells += [_times(shares[each]) for each in names]
        cells.append(f"{asked.processes():,}")
        front = f"{math.ceil(asked.nginx / BUSY):,}, {load.most() * load.idle:,.0f}"
        cells.append(front if proxied else _bytes(asked.connections * IDLE))
        cells += [_if_full(shares, asked.first()), _if_full(shares, asked.then())]
        lines.append(_row(name, cells))
    return "\n".join(lines)


def _shown(name: str, proxied: bool) -> bool:
    return not (proxied and name == "connections of a process")


def _if_full(shares: Mapping[str, float], name: str) -> str:
    return name if shares[name] > 1 else "nothing"


def _head(corner: str, titles: Sequence[str]) -> list[str]:
    return [_row(corner, titles), "|---|" + "--:|" * len(titles)]


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | " + " | ".join(cells) + " |"


def _bytes(size: float) -> str:
    power = min(4, max(0, math.floor(math.log10(max(size, 1.0)) / 3)))
    scaled = size / 1000**power
    number = f"{scaled:.2g}" if scaled < 100 else f"{scaled:.0f}"
    return f"{number} {('B', 'KB', 'MB', 'GB', 'TB')[power]}"


def _times(share: float) -> str:
    if share < 0.01:
        return "under 0.01"
    return f"{share:.2g}" if share < 10 else f"{share:,.0f}"


TABLES: Sequence[Callable[[], str]] = (direct, proxied, stored)
"""The tables of operating.md between `<!-- name -->` and `<!-- end -->`."""


def rewrite() -> None:
    """Write the tables into the guide."""
    file = HERE / "operating.md"
    text = file.read_text(encoding="utf-8")
    for table in TABLES:
        start = f"<!-- {table.__name__} -->\n"
        before, found, rest = text.partition(start)
        assert found, f"{file} has no {start}"
        text = f"{before}{start}{table()}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    file.write_text(text, encoding="utf-8")


def report(load: Load) -> Iterator[str]:
    """Yield the lines that tell what a load asks for, directly and behind nginx."""
    yield f"calls a second: {load.mean():,.1f} on average, {load.most():,.1f} at the peak"
    for proxied in (False, True):
        asked = need(load, proxied=proxied)
        yield f"\n{'behind nginx' if proxied else 'devices connect to the servers'}:"
        for name, share in asked.shares().items():
            yield f"  {name}: {_times(share)} times what one may take"
        yield f"  server processes: {asked.processes():,}"
        if proxied:
            yield f"  cores of nginx: {math.ceil(asked.nginx / BUSY):,}"
            yield f"  connections of nginx: {load.most() * load.idle:,.0f}"
        else:
            yield f"  memory of connections: {_bytes(asked.connections * IDLE)}"
        yield f"  the most used, with one process: {asked.first()}"
        yield f"  with as many as are needed: {asked.then()}"
    yield f"\nrows kept on PostgreSQL: {_bytes(need(load, proxied=True).kept)}"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Size a deployment, or rewrite operating.md.")
    parser.add_argument("--devices", type=float, help="devices that send each day")
    parser.add_argument("--batches", type=float, default=1.0, help="of each device and day")
    parser.add_argument("--peak", type=float, default=10.0, help="busiest minute over the mean")
    parser.add_argument("--idle", type=float, default=300.0, help="max_connection_idle_seconds")
    parser.add_argument("--days", type=float, default=30.0, help="keep_batches_days")
    given = parser.parse_args(arguments)
    if given.devices is None:
        rewrite()
        return
    load = Load(given.devices, given.batches, given.peak, given.idle, given.days)
    sys.stdout.write("\n".join(report(load)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
