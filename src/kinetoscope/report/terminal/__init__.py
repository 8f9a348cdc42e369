"""Reports for terminals.

Files: summary (the screen of ``kinetoscope summary``), findings, breakdown (stacked bars), tables (columns that fit),
screen (printing).
"""
