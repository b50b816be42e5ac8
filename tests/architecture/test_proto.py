"""The code of the protos is what `make proto` makes of them."""

from __future__ import annotations

from pathlib import Path

from app.proto import generate


def test_the_committed_code_is_what_protoc_makes(tmp_path: Path) -> None:
    made = {path.relative_to(tmp_path): path.read_bytes() for path in generate.generate(tmp_path)}
    there = {
        path.relative_to(generate.ROOT): path.read_bytes() for path in generate.ROOT.glob("tidemill/v1/*_pb2*.py*")
    }
    assert len(made) == 9
    assert made == there
