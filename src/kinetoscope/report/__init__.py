"""report: what an analysis found, for people to read.

On the screen of a terminal (`terminal`), as a page's data (`sections`), and as that page in a notebook's frame
(`notebook`), in the same `words` and `sentences`, with the same `calls`, added up once for all. `cells` are what a
notebook shows of a result that is the last line of a cell.
"""
