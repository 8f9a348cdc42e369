"""The frame of a report in a notebook."""

import pytest

from kinetoscope.errors import SettingsError
from kinetoscope.report.notebook.view import view
from support.comparisons import comparison, row

COMPARISON = comparison(row("step", "typical step", "same", 0.0))


@pytest.mark.parametrize("height", [1, 720])
def test_a_frame_has_its_height_in_pixels_and_keeps_out_of_the_notebook(height):
    frame = view(COMPARISON, height=height)._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts" ')
    assert f' height="{height}" ' in frame


@pytest.mark.parametrize("height", [0, -1, 1.5, True, "720", None])
def test_an_impossible_height_is_refused(height):
    with pytest.raises(SettingsError, match=f"a number of pixels above 0, not {height!r}"):
        view(COMPARISON, height=height)
