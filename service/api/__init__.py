"""The routes, one file a noun: parse, ask below, answer."""
