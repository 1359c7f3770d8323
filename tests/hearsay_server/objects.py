"""An object store on loopback."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow.fs

from support import free_port


class ObjectStore:
    """An S3 store with one bucket, "lake", and a key that it takes."""

    def __init__(self, port: int) -> None:
        self._host = f"127.0.0.1:{port}"
        self.filesystem = pyarrow.fs.S3FileSystem(
            access_key="key",
            secret_key="secret",
            region="us-east-1",
            scheme="http",
            endpoint_override=self._host,
            allow_bucket_creation=True,
        )

    def uri(self, folder: str) -> str:
        """Return the URI of a folder, with the key."""
        options = f"region=us-east-1&scheme=http&endpoint_override={self._host}"
        return f"s3://key:secret@lake/{folder}?{options}"

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects in a folder."""
        selector = pyarrow.fs.FileSelector(f"lake/{folder}", allow_not_found=True, recursive=True)
        return sorted(info.base_name for info in self.filesystem.get_file_info(selector))


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Run the store while the context lasts."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        store = ObjectStore(port)
        for attempt in range(100):
            try:
                store.filesystem.create_dir("lake")
                break
            except OSError:
                if attempt == 99 or process.poll() is not None:
                    raise
                time.sleep(0.2)
        yield store
    finally:
        process.send_signal(signal.SIGKILL)  # nothing of it is to be kept
        process.wait()
