"""A survey in which batch i alone says category i: each count ends as 1, or a batch is lost."""

from hearsay.v1 import collector_pb2

COUNT = 600
ORACLE = f"""
name = "oracle"
[levels]
only = 1.0
[[attributes]]
name = "which"
mechanism = "krr"
[attributes.categorical]
values = [{", ".join(f'"{number}"' for number in range(COUNT))}]
"""
DONE = (collector_pb2.Result.STORED, collector_pb2.Result.DUPLICATE)


def request(number: int, revision: bytes) -> collector_pb2.SubmitRequest:
    """Return the request with the one batch that says category `number`."""
    batch = collector_pb2.Batch(
        id=number.to_bytes(16, "big"), survey="oracle", revision=revision, period="once", rows=1
    )
    batch.columns.add(attribute="which", level="only", codes=number.to_bytes(2, "little"))
    return collector_pb2.SubmitRequest(batches=[batch])
