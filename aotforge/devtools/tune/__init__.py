"""Search of settings by estimates: candidates, a store of estimates, report, kept results."""
