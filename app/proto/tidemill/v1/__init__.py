"""`tidemill.v1`: stages in other services, states of stages, the control table."""
