"""``make docs``: how Sphinx makes the pages of this folder, and those made from the source beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

import kinetoscope

project = "Kinetoscope"
version = release = kinetoscope.__version__
language = "en"

# The maintainer sets both before the first release; links to this project's hosts are left out until then.
html_baseurl = ""
"""The address of these pages, such as ``https://HOST/docs/``: for canonical links and OpenGraph."""
edit_url = ""
"""The address that edits a file, without its path, such as ``https://HOST/OWNER/kinetoscope/edit/main/``."""

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "generated_pages",
    "repository_links",
    "plain_docstrings",
    "accessibility",
    "typography",
    "page_metadata",
]
exclude_patterns = ["extensions", "images"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

# What links within pages lead to has the names that the repository's web view gives it.
myst_heading_anchors = 4
myst_links_external_new_tab = False

# Docstrings put code between single backticks, too.
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # the Attributes of a class are fields of its description
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
add_module_names = False
toc_object_entries = False
python_use_unqualified_type_names = True

html_search_scorer = str(Path(__file__).parent / "extensions" / "scorer.js")
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["kinetoscope.css"]
html_title = f"Kinetoscope {release}"
html_favicon = "images/favicon.svg"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
