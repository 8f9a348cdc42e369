"""report, as a page: what the page shows is built here, and put into it by pages."""
