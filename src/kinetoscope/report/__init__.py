"""report: results of an analysis for people.

`terminal` has the screens of commands, `page` the data of the report page, and `notebook` that page and the output of
cells. All of them share `labels`, `descriptions` and the sums of `calls`.
"""
