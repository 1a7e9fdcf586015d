"""What a result shows in a notebook."""

import pandas as pd

from marlnb.analysis.results import shown_as_html


def test_a_result_shows_its_words_its_doubts_and_its_table() -> None:
    shown = shown_as_html("Mediation(x)", ("few: 3 < 20",), pd.DataFrame({"unit": [7], "effect": [0.12345]}))
    assert shown.startswith("<p>Mediation(x)</p>") and "NOT TO BE TRUSTED:</b> few: 3 &lt; 20</p>" in shown
    assert "0.123<" in shown and "NOT TO" not in shown_as_html("x", (), pd.DataFrame())


def test_a_long_table_says_how_much_of_it_is_shown_and_a_name_is_no_markup() -> None:
    shown = shown_as_html("Tuning(<b>unit</b>)", (), pd.DataFrame({"unit": range(5)}), rows=2)
    assert "the first 2 of 5 rows" in shown and "<td>1</td>" in shown and "<td>2</td>" not in shown
    assert "&lt;b&gt;unit&lt;/b&gt;" in shown
    assert "rows" not in shown_as_html("Tuning(unit)", (), pd.DataFrame({"unit": range(2)}), rows=2)
