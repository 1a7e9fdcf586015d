"""Write a recording for other tools: a labelled array (netCDF), a table (CSV), Minari or NWB.

In netCDF names have dots for slashes. Minari: --out is the folder of datasets, --name the dataset's name.

  marlnb export runs/talk/recordings/recording.h5 --to csv --out talk.csv --sites 'listener/*' --episodes 0:20
  marlnb export runs/talk/recordings/recording.h5 --to minari --out datasets --name talk-v0
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from marlnb.cli.output import quiet_stdout
from marlnb.cli.selection_options import add_part_arguments, chosen_part
from marlnb.errors import RecordingError

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

FORMATS = ("xarray", "csv", "minari", "nwb")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", metavar="FILE", help="a recording")
    parser.add_argument("--to", required=True, choices=FORMATS, help="the format")
    parser.add_argument("--out", required=True, type=Path, metavar="PATH", help="the file, or Minari's folder")
    parser.add_argument("--name", metavar="NAME-vN", help="of the Minari datasets (default <recording>-v0)")
    add_part_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from marlnb.recording.file.reader import Recording

    if arguments.to != "minari" and arguments.out.exists():
        raise RecordingError(f"{arguments.out} is there already; give another --out")
    with quiet_stdout(), Recording.open(arguments.recording) as recording:
        made = _write(recording, arguments)
    print("\n".join(made))
    return 0


def _write(recording: Recording, arguments: argparse.Namespace) -> list[str]:
    part, out = chosen_part(arguments), arguments.out
    if arguments.to == "minari":
        if any(value is not None for value in part.values()):
            raise RecordingError("Minari holds whole episodes of observations and actions; extract the part first")
        return recording.to_minari(arguments.name or f"{recording.path.stem}-v0", folder=out)
    if arguments.to == "nwb":
        return [str(recording.to_nwb(out, **part))]
    if arguments.to == "csv":
        recording.to_pandas(**part).to_csv(out, index=False)
    else:
        data = recording.to_xarray(**part)
        data.rename({name: str(name).replace("/", ".") for name in (*data.variables, *data.dims)}).to_netcdf(out)
    return [str(out)]
