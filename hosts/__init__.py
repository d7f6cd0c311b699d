"""`make test-hosts`: our adapters under their hosts' own checks, with the real, heavy packages."""
