"""Makes the Python code of the protos: `make proto`. A test proves that what is committed is what this makes.

protoc lets the modules import each other by the package of the proto; here they live below `app.proto`.
"""

from __future__ import annotations

import re
import sys
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).parent
_IMPORT = re.compile(r"^from tidemill\.v1 import ", re.MULTILINE)


def generate(target: Path) -> list[Path]:
    """Writes the code below `target`, in the folders of the protos."""
    from grpc_tools import protoc

    protos = sorted(str(each) for each in ROOT.glob("tidemill/v1/*.proto"))
    well_known = str(files("grpc_tools") / "_proto")
    arguments = ["protoc", f"-I{ROOT}", f"-I{well_known}"]
    arguments += [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
    if protoc.main([*arguments, *protos]) != 0:
        raise RuntimeError("protoc refused the protos")
    made = sorted(target.glob("tidemill/v1/*_pb2*.py*"))
    for each in made:
        each.write_text(_IMPORT.sub("from app.proto.tidemill.v1 import ", each.read_text()))
    return made


if __name__ == "__main__":
    for path in generate(ROOT):
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
