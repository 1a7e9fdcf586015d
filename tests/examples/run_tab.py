"""A tab of the run panel that shows how fast the training was: mean frames per second, and when they were lowest.

A tab is a class with `widget`, `refresh` and `close`, and one entry in `TABS`:

    from marlnb.widgets.runs.run_panel import TABS

    TABS["Speed"] = SpeedTab

`TABS` calls it with the RunPanel when the user opens the tab for the first time.
"""

from __future__ import annotations

from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.controls import button_for
from marlnb.widgets.core.style import HTML, note_html, problem_html, styled, table_html
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.runs.run_panel import RunPanel


class SpeedTab:
    """The speed of a training run.

    Attributes:
        widget: what the tab shows.
        rows: of the table, one for each quarter of the training; empty before they are read.
    """

    def __init__(self, panel: RunPanel) -> None:
        self.run = panel.run
        self.rows: list[list[object]] = []
        self._reading = LatestOnly(wait_s=0)
        self._table = HTML()
        refresh = button_for(self.refresh, "Refresh", "refresh", "read the metrics again")
        self.widget = styled(refresh, self._table, name="speed-tab")
        self.refresh()

    @with_ui_lock  # a cell may call it: it changes the panel
    def refresh(self) -> None:
        """Reads the metrics in a thread, so that the page stays responsive; called when the tab is opened again."""
        self._table.value = note_html("reading")
        self._reading.request(self._read, self._show, self._fail)

    def close(self) -> None:
        """Called when the run's panel is closed."""
        self._reading.cancel()

    def _read(self) -> list[list[object]]:
        """Runs in a thread, without UI_LOCK: it must not change widgets."""
        table = self.run.metrics()
        quarter = (4 * table["frames"] / table["frames"].iloc[-1]).clip(upper=3.999).astype(int)
        speed = table["frames_per_second"].groupby(quarter).agg(["mean", "min"])
        return [[f"quarter {k + 1}", f"{row['mean']:,.0f}", f"{row['min']:,.0f}"] for k, row in speed.iterrows()]

    def _show(self, rows: list[list[object]]) -> None:
        """Runs under UI_LOCK."""
        self.rows = rows
        self._table.value = table_html(["training", "frames a second (mean)", "lowest"], rows)

    def _fail(self, error: Exception) -> None:
        """Runs under UI_LOCK."""
        self._table.value = problem_html(str(error))
