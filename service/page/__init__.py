"""The page, as files that a browser loads as they are: no build step. service/api/page.py serves them."""
