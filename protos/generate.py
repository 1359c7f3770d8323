"""Generate the Python code of the wire: `python protos/generate.py OUT_DIR`."""

import sys
from pathlib import Path

from grpc_tools import protoc

SOURCE = Path(__file__).resolve().parent


def generate(out: Path) -> None:
    """Write hearsay/v1/*_pb2.py, their .pyi and *_pb2_grpc.py below `out`."""
    files = sorted(SOURCE.glob("hearsay/v1/*.proto"))
    include = Path(protoc.__file__).parent / "_proto"
    status = protoc.main(
        [
            "protoc",
            f"--proto_path={SOURCE}",
            f"--proto_path={include}",
            f"--python_out={out}",
            f"--pyi_out={out}",
            f"--grpc_python_out={out}",
            *(str(file) for file in files),
        ]
    )
    if status:
        raise SystemExit(status)
    for file in files:  # only a service needs the third file
        if "\nservice " not in file.read_text():
            (out / "hearsay" / "v1" / f"{file.stem}_pb2_grpc.py").unlink()


if __name__ == "__main__":
    generate(Path(sys.argv[1]))
