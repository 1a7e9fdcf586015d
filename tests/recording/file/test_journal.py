from __future__ import annotations

import resource
from pathlib import Path

import pytest

from marlnb.recording.file.journal import JournaledFile


def test_after_a_refused_write_hdf5_reads_what_it_wrote(tmp_path: Path) -> None:
    """Else it could not close the file, and ended the process when that ended."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(OSError, match="File too large"), JournaledFile(tmp_path / "f", locking=False) as file:
        items = file.until_refused([b"ab", b"cd", b"ef"])
        file.write(next(items))
        resource.setrlimit(resource.RLIMIT_FSIZE, (3, hard))
        try:
            file.write(next(items))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        file.write(b"gh")
        file.seek(1)
        assert file.read(5) == b"bcdgh"
        with pytest.raises(OSError, match="File too large"):
            next(items)
