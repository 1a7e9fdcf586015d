"""Checks that the node's Python has the modules and environments that the notebook's cells use."""

from __future__ import annotations

from collections.abc import Iterator

from marlnb.batch.doctor.check import Answer, check
from marlnb.batch.doctor.request import DoctorRequest

# the extra of marlnb, or the package, that installs a module with another name
PACKAGES_OF_MODULES = {
    "Box2D": "marlnb[sisl]",
    "pygame": "marlnb[butterfly]",
    "pymunk": "marlnb[butterfly]",
    "rlcard": "marlnb[classic]",
    "chess": "marlnb[classic]",
    "vmas": "marlnb[vmas]",
    "pyspiel": "marlnb[openspiel]",
    "umap": "marlnb[umap]",
    "stable_baselines3": "marlnb[sb3]",
    "xarray": "marlnb[export]",
    "minari": "marlnb[export]",
    "pynwb": "marlnb[export]",
    "sklearn": "scikit-learn",
    "cv2": "opencv-python",
    "PIL": "pillow",
    "yaml": "pyyaml",
}


@check("imports")
def _modules(request: DoctorRequest) -> Iterator[Answer]:
    cell_numbers, report = request.modules, request.kernel_report
    if not cell_numbers:
        return
    if not report.executable:
        yield "warn", "imports are not checked, since the kernel did not start", "see the check `kernel`"
        return
    for name in report.missing:
        package = PACKAGES_OF_MODULES.get(name.partition(".")[0], name.partition(".")[0])
        remedy = f"install it before the batch, with internet: {report.executable} -m pip install '{package}'"
        yield "fail", f"cell {cell_numbers[name]} imports {name}, which {report.executable} does not find", remedy
    if not report.missing:
        yield "ok", f"all {len(cell_numbers)} imported modules are installed", ""


@check("environments")
def _environments(request: DoctorRequest) -> Iterator[Answer]:
    cell_numbers, report = request.environments, request.kernel_report
    if not cell_numbers or not report.executable or report.import_error:
        return
    for name, problem in report.broken.items():
        yield "fail", f"cell {cell_numbers[name]}: env={name} cannot be built: {problem}", "install what is missing"
    if not report.broken:
        yield "ok", f"every named environment was built: {', '.join(cell_numbers)}", ""
