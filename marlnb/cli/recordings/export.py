"""Convert a recording for other tools: a labelled array (netCDF), a table (CSV), Minari or NWB.

In netCDF files, names have dots instead of slashes. For Minari, --out is the folder of datasets and --name the
dataset's name.

  marlnb export runs/talk/recordings/recording.h5 --to csv --out talk.csv --sites 'listener/*' --episodes 0:20
  marlnb export runs/talk/recordings/recording.h5 --to minari --out datasets --name talk-v0
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from marlnb.cli.output import print_text, quiet_stdout
from marlnb.cli.selection_options import add_selection_arguments, chosen_selection
from marlnb.disk import replacing, writing
from marlnb.errors import ConfigError, RecordingError, RecordingWriteError

if TYPE_CHECKING:
    import xarray as xr

    from marlnb.recording.file.reader import Recording

FORMATS = ("xarray", "csv", "minari", "nwb")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", metavar="FILE", help="a recording")
    parser.add_argument("--to", required=True, choices=FORMATS, help="the format")
    parser.add_argument("--out", required=True, type=Path, metavar="PATH", help="the file, or Minari's folder")
    parser.add_argument("--name", metavar="NAME-vN", help="name of the Minari datasets (default <recording>-v0)")
    add_selection_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    from marlnb.recording.file.reader import Recording

    if arguments.to != "minari" and arguments.name is not None:
        raise ConfigError(f"--name names Minari datasets; --to {arguments.to} writes the file --out")
    if arguments.to != "minari" and arguments.out.exists():
        raise RecordingError(f"{arguments.out} already exists; give another --out")
    with quiet_stdout(), Recording.open(arguments.recording) as recording:
        outputs = _write(recording, arguments)
    print_text("\n".join(outputs))


def _write(recording: Recording, arguments: argparse.Namespace) -> list[str]:
    from marlnb.recording.export.arrays import to_pandas, to_xarray
    from marlnb.recording.export.minari import to_minari
    from marlnb.recording.export.nwb import to_nwb

    selection, out = chosen_selection(arguments), arguments.out
    if arguments.to == "minari":
        if any(value is not None for value in selection.values()):
            raise RecordingError(
                "Minari datasets hold all fields of whole episodes; select a part with `marlnb extract` first"
            )
        return to_minari(recording, arguments.name or f"{recording.path.stem}-v0", folder=out)
    if arguments.to == "nwb":
        return [str(to_nwb(recording, out, **selection))]
    data = (to_pandas if arguments.to == "csv" else to_xarray)(recording, **selection)
    with writing(out, kind=RecordingWriteError):
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as part:
            if arguments.to == "csv":
                from pandas.io.common import infer_compression  # by the name that the file will have

                data.to_csv(part, index=False, compression=infer_compression(out, "infer"))
            else:
                _write_netcdf(data, part)
    return [str(out)]


def _write_netcdf(data: xr.Dataset, path: Path) -> None:
    data = data.rename({name: str(name).replace("/", ".") for name in (*data.variables, *data.dims)})
    try:
        data.to_netcdf(path)
    except ValueError as error:
        problem = str(error).splitlines()[0]
        raise RecordingError(
            f"netCDF cannot hold all of this: {problem}; choose with --sites and --fields, or use --to csv"
        ) from error
