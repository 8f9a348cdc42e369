"""report: results of an analysis for people.

`terminal` has the screens of commands, `page` the data of the report page, `notebook` that page in a notebook, and
`notebook_html` the output of a cell. All of them share `labels`, `descriptions` and the sums of `calls`.
"""
