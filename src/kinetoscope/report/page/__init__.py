"""Data of the report page, section by section.

`downsampling` limits the number of spans and values, and `privacy` removes personal names.
"""
