"""report, as a page: what the page shows is worked out here, section by section, and put into it by `pages`.

`thinning` says what is left out, and `privacy` what a page never has.
"""
