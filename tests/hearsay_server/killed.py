"""A server, a device and a third process, of which any may be killed at any moment."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hearsay import create_ledger
from support import Server


class Trio:
    """Three processes; each goes on with the files that it left."""

    def __init__(
        self,
        server: Server,
        ledger: Path,
        commands: Mapping[str, Callable[[], Sequence[object]]],
    ) -> None:
        """Start the server. `commands` has what Python runs for the other two, one of which is the
        "device", whose ledger lies beside the list of the people whose answers it recorded."""
        self.server, self.ledger = server, ledger
        self.server.start()
        create_ledger(ledger)
        self.log = Path(f"{ledger}.log")
        self.log.touch()
        self.filled = 0
        self.kills = dict.fromkeys(("server", *commands), 0)
        self._commands = commands
        self._running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str) -> None:
        """Start one of the three, and wait until it answers."""
        if name == "server":
            self.server.start()
            return
        command = [sys.executable, *map(str, self._commands[name]())]
        with (self.ledger.parent / "errors").open("a") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None and process.stdout.readline(), name
        self._running[name] = process

    def kill(self, name: str) -> None:
        """End a process at once, whatever it is doing."""
        self.kills[name] += 1
        if name == "server":
            self.server.stop(signal.SIGKILL)
            return
        process = self._running.pop(name)
        process.kill()
        process.communicate()

    def kill_at_random(self, seconds: float, looked: Callable[[], object]) -> None:
        """Kill one of the three and start it again, for so long; look after each time."""
        chance, end = random.Random(7), time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(chance.uniform(0.1, 1.0))
            name = chance.choice([*self.kills])
            self.kill(name)
            self.start(name)
            looked()

    def close(self) -> None:
        """End all, and print how often each was killed."""
        sys.stdout.write(f"kills {self.kills}, people {self.recorded()}\n")
        for name in [*self._running]:
            self.kill(name)
        if self.server.is_running():
            self.server.stop()

    def recorded(self) -> int:
        """Return how many people's answers were surely recorded; the next may have been, too."""
        with self.log.open("rb") as lines:
            lines.seek(max(0, os.fstat(lines.fileno()).st_size - 10))
            return int(lines.read(10) or -1) + 1
