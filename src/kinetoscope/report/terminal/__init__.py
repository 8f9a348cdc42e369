"""Reports for terminals.

Files: summary and comparison_screen (the screens of ``kinetoscope summary`` and ``diff``), findings, breakdown
(stacked bars), tables (columns that fit), screen (printing).
"""
