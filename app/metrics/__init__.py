"""`/metrics`: what Prometheus reads.

- Everything is read from Postgres, once for a scrape, by index and in bounds: what there are very many of is counted up
  to `COUNTED`, and named up to `NAMED`. So a scrape costs about the same however much waits.
- A part that fails or takes too long leaves out its own metrics, and `tidemill_scrape_errors` says so.
- Every metric is one of `catalogue`, which the reference, the alert rules and the dashboard are checked against.
"""
