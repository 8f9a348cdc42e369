"""Reports in notebooks: the page in a frame (`view`), and results as the last line of a cell (`cell_html`)."""
