"""The process that floods, as a fault sees it: one order, one result."""

import asyncio
import base64
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.folders import ROOT


async def flooded(folder: Path, do: str, messages: Sequence[bytes], **order: Any) -> Any:  # noqa: ANN401 - JSON
    """Have a process of its own send these messages as the order says; return what it tells.

    Raises:
        RuntimeError: it failed; its log is in the folder.
    """
    with tempfile.TemporaryDirectory(dir=folder) as place:
        file = Path(place) / "messages"
        file.write_bytes(b"\n".join(base64.b64encode(message) for message in messages))
        with (folder / "flood.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.faults.load.flood_program",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={"PATH": os.defpath},
            )
        text = json.dumps({"do": do, "messages": str(file), **order})
        try:
            told, _ = await process.communicate(text.encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if process.returncode:
        message = f"the flood ended with {process.returncode}"
        raise RuntimeError(message)
    return json.loads(told)
